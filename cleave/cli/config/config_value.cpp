#include "cleave/cli/config/config_value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "cleave/error.h"
#include "cleave/nearest.h"

namespace cleave {
namespace {

constexpr std::string_view kAuto = "auto";

// Sets one key: an overload per type a key may have.
class Setter {
 public:
  Setter(const Key& key, const FoundValue& found, const ValuePlace& place)
      : key_(key), found_(found), place_(place) {}

  void operator()(std::string* slot) const {
    const auto& text = expect<std::string>();
    const auto words = key_.limits.words;
    const std::string_view prefix = key_.limits.prefix;
    const bool begins = !prefix.empty() && text.starts_with(prefix);
    if (!words.empty() && !begins && std::ranges::count(words, text) == 0) {
      refuse_word(text);
    }
    *slot = text;
  }

  void operator()(std::int64_t* slot) const { *slot = integer(); }

  void operator()(double* slot) const {
    const auto* whole = std::get_if<std::int64_t>(&found_.value);
    const double number =
        whole != nullptr ? static_cast<double>(*whole) : expect<double>();
    if (!std::isfinite(number)) {
      refuse("a finite number", number_text(number));
    }
    check_range(number, number_text(number));
    *slot = number;
  }

  void operator()(bool* slot) const { *slot = expect<bool>(); }

  void operator()(Bytes* slot) const {
    const auto& text = expect<std::string>();
    Bytes bytes;
    try {
      bytes = text.empty() ? Bytes{} : parse_bytes(text);
    } catch (const Error&) {
      refuse(type_text(key_), in_quotes(text));
    }
    // Zero stands for no limit, which "0GiB" hardly meant.
    if (bytes.value == 0 && !text.empty()) {
      refuse("above zero, or empty", in_quotes(text));
    }
    *slot = bytes;
  }

  void operator()(std::optional<int>* slot) const {
    const auto* text = std::get_if<std::string>(&found_.value);
    if (text == nullptr) {
      *slot = static_cast<int>(integer());
    } else if (*text == kAuto) {
      slot->reset();
    } else {
      refuse(type_text(key_), in_quotes(*text));
    }
  }

 private:
  template <class T>
  const T& expect() const {
    const T* value = std::get_if<T>(&found_.value);
    if (value == nullptr) {
      refuse(type_text(key_), found_.kind);
    }
    return *value;
  }

  std::int64_t integer() const {
    const auto value = expect<std::int64_t>();
    check_range(static_cast<double>(value), std::to_string(value));
    return value;
  }

  void check_range(double value, const std::string& text) const {
    if (!key_.limits.allow(value)) {
      refuse(range_text(key_.limits), text);
    }
  }

  [[noreturn]] void refuse(const std::string& rule,
                           const std::string& seen) const {
    fail_at(place_,
            std::string(key_.dotted) + " must be " + rule + ", found " + seen,
            "Write it like " + example(key_, place_) + ".");
  }

  [[noreturn]] void refuse_word(const std::string& text) const {
    std::vector<std::string_view> words(key_.limits.words.begin(),
                                        key_.limits.words.end());
    std::ranges::stable_sort(words, {}, [&](std::string_view word) {
      return edit_distance(text, word);
    });
    std::string choices;
    for (const std::string_view word : words) {
      choices += choices.empty() ? "" : word == words.back() ? " or " : ", ";
      choices += in_quotes(word);
    }
    fail_at(place_,
            std::string(key_.dotted) + " cannot be " + in_quotes(text),
            "Choose " + choices + ".");
  }

  const Key& key_;
  const FoundValue& found_;
  const ValuePlace& place_;
};

struct TypeText {
  std::string operator()(const std::string*) const { return "a string"; }
  std::string operator()(const std::int64_t*) const { return "an integer"; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const Bytes*) const { return "an amount of memory"; }
  std::string operator()(const std::optional<int>*) const {
    return in_quotes(kAuto) + " or an integer";
  }
};

struct TomlText {
  std::string operator()(const std::string* text) const {
    return in_quotes(*text);
  }
  std::string operator()(const std::int64_t* number) const {
    return std::to_string(*number);
  }
  std::string operator()(const double* number) const {
    const std::string text = number_text(*number);
    // TOML tells 1.0 from 1, and refuses integers of more than 64 bits.
    return text.find_first_of(".e") == text.npos ? text + ".0" : text;
  }
  std::string operator()(const bool* value) const {
    return *value ? "true" : "false";
  }
  std::string operator()(const Bytes* bytes) const {
    if (bytes->value == 0) {
      return in_quotes("");
    }
    constexpr std::array<std::string_view, 5> kUnits{
        "B", "KiB", "MiB", "GiB", "TiB"};
    std::int64_t count = bytes->value;
    std::size_t unit = 0;
    while (count % 1024 == 0 && unit + 1 < kUnits.size()) {
      count /= 1024;
      ++unit;
    }
    return in_quotes(std::to_string(count) + std::string(kUnits[unit]));
  }
  std::string operator()(const std::optional<int>* number) const {
    return *number ? std::to_string(**number) : in_quotes(kAuto);
  }
};

}  // namespace

void fail_at(const ValuePlace& place,
             const std::string& problem,
             const std::string& fix) {
  fail(place.where + ": " + problem, fix);
}

const Key& known_key(const std::string& dotted, const ValuePlace& place) {
  const Key* key = find_key(dotted);
  if (const std::string now = renamed_key(dotted); !now.empty()) {
    fail_at(place,
            dotted + " is now " + now,
            "Change the name; its values are the same.");
  }
  if (key == nullptr) {
    fail_at(place, "unknown key " + dotted, advice_on_key(dotted));
  }
  return *key;
}

void assign(Config& config,
            const Key& key,
            const FoundValue& found,
            const ValuePlace& place) {
  std::visit(Setter(key, found, place), key.slot(config));
}

std::string toml_value(Config& config, const Key& key) {
  return std::visit(TomlText(), key.slot(config));
}

std::string type_text(const Key& key) {
  Config any;
  return std::visit(TypeText(), key.slot(any));
}

std::string example(const Key& key, const ValuePlace& place) {
  Config defaults;
  std::string value = toml_value(defaults, key);
  if (value == in_quotes("")) {
    const bool memory = std::holds_alternative<Bytes*>(key.slot(defaults));
    value = in_quotes(memory ? "2GiB" : "text");
  }
  if (place.in_file) {
    return std::string(key.name()) + " = " + value;
  }
  std::erase(value, '"');
  return "--" + std::string(key.dotted) + " " + value;
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (code < 0x20 || code == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04X", code);
      result += escape.data();
    } else {
      result += letter;
    }
  }
  return result + "\"";
}

}  // namespace cleave
