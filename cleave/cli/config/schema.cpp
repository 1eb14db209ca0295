#include "cleave/cli/config/schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "cleave/nearest.h"

namespace cleave {
namespace {

using Words = std::vector<std::string_view>;

// "a, b or c"
std::string listed(const Words& words, const std::string& before_last) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) {
      text += i + 1 < words.size() ? ", " : " " + before_last + " ";
    }
    text += words[i];
  }
  return text;
}

Words section_names() {
  Words names;
  for (const KeySection& section : config_sections()) {
    names.push_back(section.name);
  }
  return names;
}

// Without their section; of one section, or of all when it is empty.
Words key_names(std::string_view section) {
  Words names;
  for (const Key& key : config_keys()) {
    if (section.empty() || key.section() == section) {
      names.push_back(key.name());
    }
  }
  return names;
}

Words keys_named(std::string_view name) {
  Words keys;
  for (const Key& key : config_keys()) {
    if (key.name() == name) {
      keys.push_back(key.dotted);
    }
  }
  return keys;
}

}  // namespace

bool Limits::allow(double number) const {
  return std::isfinite(number) &&
         (above_least ? number > least : number >= least) &&
         (below_most ? number < most : number <= most);
}

std::string_view Key::section() const {
  return dotted.substr(0, dotted.find('.'));
}

std::string_view Key::name() const {
  return dotted.substr(dotted.find('.') + 1);
}

const Key* find_key(std::string_view dotted) {
  const std::span<const Key> keys = config_keys();
  const auto found = std::ranges::find(keys, dotted, &Key::dotted);
  return found == keys.end() ? nullptr : &*found;
}

std::string renamed_key(std::string_view dotted) {
  if (dotted == "parallel.shard") {
    return "parallel.shard_states";
  }
  return dotted == "parallel.lend" ? "parallel.stealing" : "";
}

bool is_section(std::string_view name) {
  return std::ranges::count(config_sections(), name, &KeySection::name) > 0;
}

std::string range_text(const Limits& limits) {
  std::string text;
  if (std::isfinite(limits.least)) {
    text = limits.above_least ? "above " : "at least ";
    text += number_text(limits.least);
  }
  if (std::isfinite(limits.most)) {
    text += text.empty() ? "" : " and ";
    text += limits.below_most ? "below " : "at most ";
    text += number_text(limits.most);
  }
  return text;
}

std::string number_text(double number) {
  std::array<char, 32> text{};
  char* end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

std::string advice_on_key(std::string_view dotted) {
  const std::size_t dot = dotted.find('.');
  const std::string section(dot == dotted.npos ? "" : dotted.substr(0, dot));
  const std::string_view name =
      dot == dotted.npos ? dotted : dotted.substr(dot + 1);

  Words meant = keys_named(name);
  const std::string sibling =
      is_section(section) ? nearest(name, key_names(section)) : "";
  const std::string sibling_dotted = section + "." + sibling;
  if (meant.empty() && !sibling.empty()) {
    meant = {sibling_dotted};
  }
  if (meant.empty()) {
    meant = keys_named(nearest(name, key_names("")));
  }
  if (!meant.empty()) {
    return "Did you mean " + listed(meant, "or") + "?";
  }
  return is_section(section) ? "[" + section + "] has " +
                                   listed(key_names(section), "and") + "."
                             : advice_on_section(section);
}

std::string advice_on_section(std::string_view name) {
  const std::string meant = nearest(name, section_names());
  return meant.empty()
             ? "The sections are " + listed(section_names(), "and") + "."
             : "Did you mean " + meant + "?";
}

}  // namespace cleave
