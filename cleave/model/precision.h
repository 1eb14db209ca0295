#pragma once

#include <array>
#include <string_view>

namespace cleave {

// What a network computes in. Parameters, their gradients and the optimizer
// are fp32 in any case.
enum class Precision { fp32, bf16 };

inline constexpr std::array<std::string_view, 2> kPrecisionNames{"fp32",
                                                                 "bf16"};

// REQUIRES: one of the names above.
constexpr Precision precision_named(std::string_view name) {
  return name == kPrecisionNames[1] ? Precision::bf16 : Precision::fp32;
}

}  // namespace cleave
