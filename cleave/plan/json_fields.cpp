#include "cleave/plan/json_fields.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cleave/error.h"
#include "cleave/nearest.h"
#include "cleave/plan/picoseconds.h"

namespace cleave {
namespace {

[[noreturn]] void fail_kind(const std::string& place,
                            const Json& json,
                            const std::string& kind) {
  constexpr std::size_t kShown = 40;
  std::string value = json.dump(-1, ' ', true);  // ASCII: can be cut anywhere
  if (value.size() > kShown) {
    value = value.substr(0, kShown) + "...";
  }
  fail(place + " is " + value, "It must be " + kind + ".");
}

bool is_text(const Json& json) {
  return json.is_string();
}

bool is_list(const Json& json) {
  return json.is_array();
}

bool is_whole(const Json& json) {
  constexpr std::uint64_t kMost = INT64_MAX;
  return json.is_number_integer() &&
         !(json.is_number_unsigned() && json.get<std::uint64_t>() > kMost);
}

bool is_list_of_texts(const Json& json) {
  return json.is_array() && std::ranges::all_of(json, is_text);
}

// What the JSON library says, without the name of its exception in brackets.
std::string reason(const Json::exception& problem) {
  const std::string what = problem.what();
  return what.substr(what.find(']') + 2);
}

std::string listed(const JsonKeys& keys) {
  std::string text;
  for (const std::string_view key : keys) {
    text += (text.empty() ? "" : ", ") + std::string(key);
  }
  return text;
}

// Where an object stands, in front of the name of one of its fields.
std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

}  // namespace

Json parse_json(const std::string& text, const std::string& source) {
  using Event = Json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of every object still open
  const auto watch = [&](int, Event event, const Json& parsed) {
    if (event == Event::object_start) {
      keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key &&
               !keys.back().insert(parsed.get<std::string>()).second) {
      fail(source + ": the key '" + parsed.get<std::string>() +
               "' stands twice in one object",
           "Delete one of them.");
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& problem) {
    fail(source + " is not JSON: " + reason(problem),
         "Check the commas, quotes and brackets there.");
  } catch (const Json::out_of_range& problem) {
    fail(source + " cannot be read: " + reason(problem),
         "Write a smaller number.");
  }
}

std::string to_pretty_text(const Json& json) {
  try {
    return json.dump(2) + "\n";
  } catch (const Json::exception&) {
    fail("a name cannot be written as JSON because it is not UTF-8",
         "Use UTF-8 for the names of models, layers and devices.");
  }
}

JsonFields::JsonFields(const Json& json,
                       std::string source,
                       std::string path,
                       const JsonKeys& known)
    : json_(json), source_(std::move(source)), path_(std::move(path)) {
  if (!json.is_object()) {
    fail_kind(path_.empty() ? source_ : source_ + ": " + path_,
              json,
              "an object in braces");
  }
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      const std::string meant = nearest(key, known);
      fail(place(key) + " is no known key",
           meant.empty() ? "The known ones are: " + listed(known) + "."
                         : "Did you mean " + meant + "?");
    }
  }
}

std::string JsonFields::place(const std::string& key) const {
  return source_ + ": " + joined(path_, key);
}

const Json& JsonFields::find(
    const std::string& key,
    const std::string& kind,
    const std::function<bool(const Json&)>& is_kind) const {
  const auto found = json_.find(key);
  if (found == json_.end()) {
    fail(place(key) + " is missing", "Add it: " + kind + ".");
  }
  if (!is_kind(*found)) {
    fail_kind(place(key), *found, kind);
  }
  return *found;
}

std::string JsonFields::text(const std::string& key) const {
  return find(key, "a text in quotes", is_text).get<std::string>();
}

std::vector<std::string> JsonFields::texts(const std::string& key) const {
  return find(key, "a list of texts in quotes", is_list_of_texts)
      .get<std::vector<std::string>>();
}

std::int64_t JsonFields::whole(const std::string& key,
                               std::int64_t least,
                               std::int64_t most) const {
  const std::string kind =
      "a whole number" +
      (most == INT64_MAX
           ? " of at least " + std::to_string(least)
           : " from " + std::to_string(least) + " to " + std::to_string(most));
  const auto in_range = [&](const Json& json) {
    return is_whole(json) && json.get<std::int64_t>() >= least &&
           json.get<std::int64_t>() <= most;
  };
  return find(key, kind, in_range).get<std::int64_t>();
}

bool JsonFields::truth(const std::string& key) const {
  const auto is_truth = [](const Json& json) { return json.is_boolean(); };
  return find(key, "true or false", is_truth).get<bool>();
}

Seconds JsonFields::milliseconds(const std::string& key) const {
  constexpr double kMost = 9e9;  // as many picoseconds as std::int64_t holds
  const auto in_range = [](const Json& json) {
    return json.is_number() && json.get<double>() >= 0 &&
           json.get<double>() <= kMost;
  };
  const auto value =
      find(key, "a number of milliseconds, at least 0", in_range).get<double>();
  return from_picoseconds(std::llround(value * 1e9));
}

std::vector<std::pair<const Json*, std::string>> JsonFields::items(
    const std::string& key) const {
  const Json& list = find(key, "a list of objects in braces", is_list);
  std::vector<std::pair<const Json*, std::string>> found;
  for (std::size_t i = 0; i < list.size(); ++i) {
    found.emplace_back(&list[i], path_of(key) + "[" + std::to_string(i) + "]");
  }
  return found;
}

std::vector<std::vector<std::string>> JsonFields::lists_of_texts(
    const std::string& key) const {
  const auto is_list_of_lists = [](const Json& json) {
    return json.is_array() && std::ranges::all_of(json, is_list_of_texts);
  };
  return find(key, "a list of lists of texts in quotes", is_list_of_lists)
      .get<std::vector<std::vector<std::string>>>();
}

const Json& JsonFields::object_at(const std::string& key) const {
  return find(key, "an object in braces", [](const Json& json) {
    return json.is_object();
  });
}

std::string JsonFields::path_of(const std::string& key) const {
  return joined(path_, key);
}

double to_milliseconds(Seconds time) {
  return static_cast<double>(to_picoseconds(time)) / 1e9;
}

}  // namespace cleave
