#pragma once

#include <array>
#include <string>
#include <string_view>

namespace cleave {

// What replicas divide among them, instead of everyone having all.
enum class Shard {
  none,
  optimizer,  // the states of the optimizer, and gradients once they are summed
  gradients,  // these, and gradients are summed after every microbatch
};

inline constexpr std::array<std::string_view, 3> kShardNames{
    "none", "optimizer", "gradients"};

// Throws Error where there is none of this name.
Shard shard_named(const std::string& name);

}  // namespace cleave
