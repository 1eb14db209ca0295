#include <charconv>
#include <cstddef>
#include <optional>

#include "cleave/cli/config/config.h"
#include "cleave/cli/config/config_value.h"
#include "cleave/cli/config/schema.h"

namespace cleave {
namespace {

const ValuePlace& command_line() {
  static const ValuePlace place{.where = "command line", .in_file = false};
  return place;
}

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, number);
  return problem == std::errc() && stop == end ? std::optional(number)
                                               : std::nullopt;
}

// The shell has no types: what the text may be depends on the key.
FoundValue read_argument(const Key& key, const std::string& text) {
  Config any;
  const Slot slot = key.slot(any);
  FoundValue found{.value = text, .kind = in_quotes(text)};
  if (std::holds_alternative<std::string*>(slot) ||
      std::holds_alternative<Bytes*>(slot)) {
    return found;
  }
  if (text == "true" || text == "false") {
    found.value = text == "true";
  } else if (const auto whole = parsed<std::int64_t>(text)) {
    found.value = *whole;
  } else if (const auto number = parsed<double>(text)) {
    found.value = *number;
  }
  return found;
}

const Key& overridden_key(const std::string& dotted) {
  if (is_section(dotted)) {
    fail_at(command_line(),
            dotted + " is a section, not a key",
            "Name one of its keys, as in --train.steps 100.");
  }
  return known_key(dotted, command_line());
}

bool is_boolean(const Key& key) {
  Config any;
  return std::holds_alternative<bool*>(key.slot(any));
}

}  // namespace

Overrides parse_overrides(std::span<const std::string> arguments) {
  Overrides overrides;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) {
      fail_at(command_line(),
              "unexpected argument " + in_quotes(argument),
              "Write a key and its value, as in --train.steps 100.");
    }
    const std::size_t equals = argument.find('=');
    const std::string dotted =
        argument.substr(2, equals == argument.npos ? equals : equals - 2);
    const Key& key = overridden_key(dotted);
    const bool value_follows =
        i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (equals != argument.npos) {
      overrides.emplace_back(dotted, argument.substr(equals + 1));
    } else if (value_follows) {
      overrides.emplace_back(dotted, arguments[++i]);
    } else if (is_boolean(key)) {
      overrides.emplace_back(dotted, "true");
    } else {
      fail_at(command_line(),
              dotted + " has no value",
              "Write it like " + example(key, command_line()) + ".");
    }
  }
  return overrides;
}

void apply(const Overrides& overrides, Config& config) {
  for (const auto& [dotted, text] : overrides) {
    const Key& key = overridden_key(dotted);
    assign(config, key, read_argument(key, text), command_line());
  }
}

}  // namespace cleave
