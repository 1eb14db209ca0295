#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "cleave/units.h"

// Choices, and what was measured, that are the same for a whole run.
namespace cleave {

// What replicas divide among them, instead of everyone having all.
enum class ShardStates {
  none,
  optimizer,  // the states of the optimizer, and gradients once they are summed
  gradients,  // these, and gradients are summed after every microbatch
};

inline constexpr std::array<std::string_view, 3> kShardStatesNames{
    "none", "optimizer", "gradients"};

inline std::string_view name_of(ShardStates states) {
  return kShardStatesNames[static_cast<std::size_t>(states)];
}

// Throws Error where there is none of this name.
ShardStates shard_states_named(const std::string& name);

// What a network computes in. Parameters, their gradients and the optimizer
// are fp32 in any case.
enum class Precision { fp32, bf16 };

inline constexpr std::array<std::string_view, 2> kPrecisionNames{"fp32",
                                                                 "bf16"};

// REQUIRES: one of the names above.
constexpr Precision precision_named(std::string_view name) {
  return name == kPrecisionNames[1] ? Precision::bf16 : Precision::fp32;
}

// Gradients that replicas sum together, at least.
inline constexpr Bytes kDefaultBucket{8 << 20};

// What messages between neighbouring ranks cost. The defaults are for one
// process, where a message is a pointer handed over.
struct MessageSpeed {
  Seconds latency{5e-6};
  double bandwidth = 1e12;  // bytes per second
  // Gradients that replicas add up, in bytes per second.
  double sum_bandwidth = 2e9;
};

}  // namespace cleave
