#include "cleave/checkpoint/safetensors_json.h"

#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "cleave/error.h"

namespace cleave {
namespace {

using Json = nlohmann::json;

// The writer keeps the order of the entries.
using OrderedJson = nlohmann::ordered_json;

// Called by the parser for every token. Refuses what a parsed document no
// longer shows, which is a key given twice, and what would make it too large.
class TokenCheck {
 public:
  explicit TokenCheck(const std::string& source) : source_(source) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& token);

 private:
  // The header, an entry or the metadata, and a shape or the offsets.
  static constexpr int kLevels = 3;

  void check_start(int depth, const std::string& what);
  void check_key(int depth, const std::string& key);

  const std::string& source_;
  std::string key_;                                            // the last one
  std::array<std::unordered_set<std::string>, kLevels> keys_;  // by depth
  std::size_t numbers_ = 0;  // in the array that is open
};

bool TokenCheck::operator()(int depth,
                            Json::parse_event_t event,
                            const Json& token) {
  using Event = Json::parse_event_t;
  if (event == Event::object_start || event == Event::array_start) {
    check_start(depth, event == Event::array_start ? "an array" : "an object");
  } else if (event == Event::key) {
    check_key(depth - 1, token.get_ref<const std::string&>());
  } else if (event == Event::value && depth == kLevels &&
             ++numbers_ > kMaxSafetensorsDimensions) {
    fail_in_file(source_,
                 shown(key_) + " has more than " +
                     std::to_string(kMaxSafetensorsDimensions) + " dimensions");
  }
  return true;
}

void TokenCheck::check_start(int depth, const std::string& what) {
  const bool is_innermost = depth == kLevels - 1;
  if (depth >= kLevels || is_innermost != (what == "an array")) {
    fail_in_file(
        source_,
        "the header holds " + what + " under " + shown(key_) +
            (depth < kLevels - 1 ? ", not an object" : ", where none belongs"));
  }
  keys_[depth].clear();
  numbers_ = 0;
}

void TokenCheck::check_key(int depth, const std::string& key) {
  key_ = key;
  if (!keys_[depth].insert(key).second) {
    fail_in_file(source_, "the header holds " + shown(key) + " twice");
  }
  if (depth == 0 && keys_[0].size() > kMaxSafetensorsTensors + 1) {
    fail_in_file(source_,
                 "the header holds more than " +
                     std::to_string(kMaxSafetensorsTensors) + " tensors");
  }
}

Json parse(std::string_view json, const std::string& source) {
  try {
    return Json::parse(json.begin(), json.end(), TokenCheck(source));
  } catch (const Json::parse_error& error) {
    fail_in_file(
        source,
        "the header is no valid JSON at byte " + std::to_string(error.byte));
  } catch (const Json::out_of_range&) {
    fail_in_file(source, "the header holds a number beyond all limits");
  }
}

// Reads one entry of the header.
class EntryReader {
 public:
  EntryReader(const std::string& name,
              const Json& entry,
              const std::string& source);

  SafetensorsEntry read() const;

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail_in_file(source_, "tensor " + shown(name_) + " has " + problem);
  }
  const Json& field(const char* name, Json::value_t type) const;
  std::vector<std::uint64_t> integers(const char* field_name) const;

  const std::string& name_;
  const Json& entry_;
  const std::string& source_;
};

EntryReader::EntryReader(const std::string& name,
                         const Json& entry,
                         const std::string& source)
    : name_(name), entry_(entry), source_(source) {
  if (!entry.is_object()) {
    refuse(std::string("a ") + entry.type_name() + ", not an object");
  }
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      refuse("an unknown field " + shown(key));
    }
  }
}

SafetensorsEntry EntryReader::read() const {
  SafetensorsEntry entry{
      .name = name_,
      .dtype = field("dtype", Json::value_t::string).get<std::string>()};
  for (const std::uint64_t size : integers("shape")) {
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  const std::vector<std::uint64_t> offsets = integers("data_offsets");
  if (offsets.size() != 2) {
    refuse(std::to_string(offsets.size()) + " data_offsets, not 2");
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

const Json& EntryReader::field(const char* name, Json::value_t type) const {
  const auto found = entry_.find(name);
  if (found == entry_.end()) {
    refuse("no " + shown(name));
  }
  if (found->type() != type) {
    refuse(std::string("a ") + found->type_name() + " in its " + shown(name));
  }
  return *found;
}

std::vector<std::uint64_t> EntryReader::integers(const char* field_name) const {
  std::vector<std::uint64_t> found;
  for (const Json& value : field(field_name, Json::value_t::array)) {
    if (!value.is_number()) {
      refuse(std::string("a ") + value.type_name() + " in its " +
             shown(field_name));
    }
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > kMaxSafetensorsInteger) {
      refuse("the number " + value.dump() + " in its " + shown(field_name) +
             ", which is no unsigned integer of at most 48 bits");
    }
    found.push_back(value.get<std::uint64_t>());
  }
  return found;
}

std::map<std::string, std::string> metadata_of(const Json& document,
                                               const std::string& source) {
  if (!document.is_object()) {
    fail_in_file(source, "the metadata are not an object");
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : document.items()) {
    if (!value.is_string()) {
      fail_in_file(source,
                   "the metadata hold a " + std::string(value.type_name()) +
                       " under " + shown(key) + ", not a string");
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

SafetensorsHeader read_safetensors_json(std::string_view json,
                                        const std::string& source) {
  // The format says "MUST begin with {". The reference reader also takes white
  // space before it; we do not, nor the byte-order mark our parser would skip.
  if (!json.starts_with('{')) {
    fail_in_file(source, "the header does not begin with '{'");
  }
  // Our parser takes this byte for the end of the text.
  if (json.find('\0') != std::string_view::npos) {
    fail_in_file(source, "the header holds a zero byte");
  }
  SafetensorsHeader header;
  const Json document = parse(json, source);
  for (const auto& [name, value] : document.items()) {
    if (name == kSafetensorsMetadata) {
      header.metadata = metadata_of(value, source);
    } else {
      header.entries.push_back(EntryReader(name, value, source).read());
    }
  }
  return header;
}

std::string write_safetensors_json(const SafetensorsHeader& header,
                                   const std::string& source) {
  OrderedJson::object_t document;
  if (!header.metadata.empty()) {
    document.emplace_back(kSafetensorsMetadata, header.metadata);
  }
  // Not operator[], which compares every name with all before it.
  for (const SafetensorsEntry& entry : header.entries) {
    document.emplace_back(
        entry.name,
        OrderedJson{{"dtype", entry.dtype},
                    {"shape", entry.shape},
                    {"data_offsets", {entry.begin, entry.end}}});
  }
  try {
    return OrderedJson(std::move(document)).dump();
  } catch (const OrderedJson::type_error&) {
    fail(source + ": a tensor's name or the metadata are not UTF-8",
         "Use plain text.");
  }
}

std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 80;
  constexpr int kNoIndent = -1;
  constexpr bool kOnlyAscii = true;
  const std::string part(name.substr(0, kMost));
  return Json(part).dump(
             kNoIndent, ' ', kOnlyAscii, Json::error_handler_t::replace) +
         (name.size() > kMost ? "..." : "");
}

void fail_in_file(const std::string& source,
                  const std::string& problem,
                  const char* file,
                  int line) {
  fail(source + ": " + problem,
       "The file is damaged or forged: fetch or make it again.",
       file,
       line);
}

}  // namespace cleave
