#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "cleave/cli/config/config.h"

// The one description of every key of the configuration.
namespace cleave {

// Where a value lives in a Config. Its type is the type of the key: text, a
// whole number, a number, true or false, an amount of memory, or a whole
// number that may be left to the program ("auto").
using Slot = std::variant<std::string*,
                          std::int64_t*,
                          double*,
                          bool*,
                          Bytes*,
                          std::optional<int>*>;

// What a value may be.
struct Limits {
  std::span<const std::string_view> words = {};  // of text; empty: any
  std::string_view prefix = {};  // text may also begin with this: "file:"
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // `least` itself is not allowed
  bool below_most = false;   // `most` itself is not allowed

  bool allow(double number) const;
};

struct Key {
  std::string_view dotted;  // "train.batch"
  Slot (*slot)(Config&);
  std::string_view help;
  Limits limits = {};

  std::string_view section() const;  // "train"
  std::string_view name() const;     // "batch"
};

struct KeySection {
  std::string_view name;
  std::string_view help;
};

// In the order of a configuration file; the keys of a section stand together.
std::span<const KeySection> config_sections();
std::span<const Key> config_keys();

// nullptr where there is none.
const Key* find_key(std::string_view dotted);
bool is_section(std::string_view name);

// What a key of earlier versions is called now; empty where it is none.
std::string renamed_key(std::string_view dotted);

// "at least 0 and below 1"; empty where every number is allowed.
std::string range_text(const Limits& limits);

// The fewest digits that read back as the same number: "0.001", "65536".
std::string number_text(double number);

// A sentence for an unknown key, or section:
// "Did you mean train.epochs?", or else what there is.
std::string advice_on_key(std::string_view dotted);
std::string advice_on_section(std::string_view name);

}  // namespace cleave
