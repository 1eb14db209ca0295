#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "cleave/cli/config/schema.h"

// Values on their way between text and a Config.
namespace cleave {

// A value as it was written, before its key says what it must be.
struct FoundValue {
  // monostate: what no key takes, such as a TOML array.
  std::variant<std::monostate, std::string, std::int64_t, double, bool> value;
  std::string kind;  // for errors: "a string", "an array"
};

// Where a value was written.
struct ValuePlace {
  std::string where;  // "run.toml:3" or "command line"
  bool in_file = true;
};

// Throws Error at the place: "run.toml:3: <problem>. <fix>".
[[noreturn]] void fail_at(const ValuePlace& place,
                          const std::string& problem,
                          const std::string& fix);

// Throws Error that advises on what may have been meant.
const Key& known_key(const std::string& dotted, const ValuePlace& place);

// Sets the key. Throws Error where the value has the wrong type or is not
// allowed; the config is then unchanged.
void assign(Config& config,
            const Key& key,
            const FoundValue& found,
            const ValuePlace& place);

// Sets the keys from what was typed on the command line, in order.
void apply(const Overrides& overrides, Config& config);

// The key's value as TOML, which reads back as the same value.
std::string toml_value(Config& config, const Key& key);

// What the key takes: "an integer", "true or false".
std::string type_text(const Key& key);

// The key with its default, as it would be written at this place:
// "batch = 256", "--train.batch 256".
std::string example(const Key& key, const ValuePlace& place);

// Text in TOML's quotes.
std::string in_quotes(std::string_view text);

}  // namespace cleave
