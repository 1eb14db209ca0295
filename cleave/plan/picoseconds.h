#pragma once

#include <cmath>
#include <cstdint>

#include "cleave/units.h"

// Planning counts time in whole picoseconds. Equal layers then tie exactly,
// sums do not depend on their order, and a time written to a file in
// milliseconds is read back as the same number (up to 2.5 hours).
namespace cleave {

inline std::int64_t to_picoseconds(Seconds time) {
  return std::llround(time.value * 1e12);
}

inline Seconds from_picoseconds(std::int64_t picoseconds) {
  return {static_cast<double>(picoseconds) / 1e12};
}

inline Seconds whole_picoseconds(Seconds time) {
  return from_picoseconds(to_picoseconds(time));
}

}  // namespace cleave
