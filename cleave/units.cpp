#include "cleave/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>

#include "cleave/error.h"

namespace cleave {
namespace {

struct Unit {
  std::string_view name;
  double size;
};

constexpr std::array kByteUnits{
    Unit{"B", 1},
    Unit{"KiB", 1024.0},
    Unit{"MiB", 1024.0 * 1024},
    Unit{"GiB", 1024.0 * 1024 * 1024},
    Unit{"TiB", 1024.0 * 1024 * 1024 * 1024},
};

constexpr std::array kDecimalByteUnits{
    Unit{"KB", 1e3}, Unit{"MB", 1e6}, Unit{"GB", 1e9}, Unit{"TB", 1e12}};

constexpr std::array kTimeUnits{
    Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}};

// The largest unit of which `value` holds at least one; else the first.
std::string scaled(double value, std::span<const Unit> units) {
  const Unit* unit = &units.front();
  for (const Unit& candidate : units) {
    if (std::abs(value) >= candidate.size * 0.9995) {
      unit = &candidate;
    }
  }
  const double number = value / unit->size;
  const double size = std::abs(number);
  const bool whole = unit == &units.front() && number == std::floor(number);
  const int digits = whole ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  std::array<char, 64> text{};
  std::snprintf(
      text.data(), text.size(), "%.*f %s", digits, number, unit->name.data());
  return text.data();
}

}  // namespace

std::string to_text(Bytes bytes) {
  return scaled(static_cast<double>(bytes.value), kByteUnits);
}

std::string to_text(Seconds seconds) {
  return seconds.value == 0 ? "0 s" : scaled(seconds.value, kTimeUnits);
}

Bytes parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, problem] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(end - text.data());
  while (unit.starts_with(' ')) {
    unit.remove_prefix(1);
  }
  double scale = unit.empty() ? 1 : 0;
  for (std::span<const Unit> units :
       {std::span<const Unit>(kByteUnits),
        std::span<const Unit>(kDecimalByteUnits)}) {
    for (const Unit& known : units) {
      scale = unit == known.name ? known.size : scale;
    }
  }
  const double bytes = number * scale;
  if (problem != std::errc() || scale == 0 || !(bytes >= 0) ||
      bytes >= 9.0e18) {
    fail("'" + std::string(text) + "' is no amount of memory",
         "Write a number and a unit, such as 512MiB, 2GiB or 1.5GB.");
  }
  return {static_cast<std::int64_t>(std::llround(bytes))};
}

}  // namespace cleave
