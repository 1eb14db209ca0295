#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cleave/units.h"

// Strict reading of JSON that people edit: a key that is unknown, missing or of
// another type than wanted is an Error that names the source and the key's path
// ("stages[1].layers"). For the sources of this folder only.
namespace cleave {

using Json = nlohmann::ordered_json;  // keys stay in the order written

using JsonKeys = std::vector<std::string_view>;

// Throws Error where the text is not JSON or names a key twice.
Json parse_json(const std::string& text, const std::string& source);

// With line breaks. Throws Error where a name is not UTF-8.
std::string to_pretty_text(const Json& json);

// The fields of one object. Keeps a reference to the object. A field that is
// read must be there.
class JsonFields {
 public:
  // `path`: where in the source the object stands, empty for all of it. Throws
  // Error where `json` is no object, or has a key that is not `known`.
  JsonFields(const Json& json,
             std::string source,
             std::string path,
             const JsonKeys& known);

  bool has(const std::string& key) const { return json_.contains(key); }
  std::string text(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::int64_t whole(const std::string& key,
                     std::int64_t least,
                     std::int64_t most = INT64_MAX) const;
  bool truth(const std::string& key) const;
  Seconds milliseconds(const std::string& key) const;

  // The objects of the list behind a key, each with its path.
  std::vector<std::pair<const Json*, std::string>> items(
      const std::string& key) const;
  std::vector<std::vector<std::string>> lists_of_texts(
      const std::string& key) const;

  // The object behind a key, and the path of what is behind it.
  const Json& object_at(const std::string& key) const;
  std::string path_of(const std::string& key) const;

 private:
  std::string place(const std::string& key) const;

  // The value behind a key. `kind` says in words what `is_kind` demands.
  const Json& find(const std::string& key,
                   const std::string& kind,
                   const std::function<bool(const Json&)>& is_kind) const;

  const Json& json_;
  std::string source_;
  std::string path_;
};

// How a file writes a time that JsonFields::milliseconds() reads.
double to_milliseconds(Seconds time);

}  // namespace cleave
