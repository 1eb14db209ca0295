#pragma once

#include <bit>
#include <cstdint>

namespace cleave {

// A bf16 number as it lies in memory: the upper half of a float.
struct Bf16 {
  std::uint16_t bits = 0;
};

// Written so that compilers make vector code of loops over them.
inline float to_float(float value) {
  return value;
}

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

inline void store(float value, float& to) {
  to = value;
}

// To the nearest, ties to even; what is not a number stays none.
inline void store(float value, Bf16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  to.bits =
      static_cast<std::uint16_t>(value == value ? rounded : bits >> 16 | 0x40);
}

}  // namespace cleave
