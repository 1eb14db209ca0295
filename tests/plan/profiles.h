#pragma once

#include <string>
#include <vector>

#include "cleave/error.h"
#include "cleave/plan/make_plan.h"

namespace cleave {

// Layers "0", "1", … that take these times forward, twice as long backward.
inline Profile profile_of(const std::vector<double>& forward) {
  Profile profile{.model = "net", .device = "cpu:0", .layers = {}};
  for (const double time : forward) {
    profile.layers.push_back({.name = std::to_string(profile.layers.size()),
                              .forward = {time},
                              .backward = {2 * time}});
  }
  return profile;
}

// Blocks of a lighter and a heavier layer with nothing between them, and a head
// that is heavier still: no cut of the chain is even.
inline Profile blocks_and_head(int blocks, Bytes activations = {}) {
  Profile profile{.model = "blocks", .microbatch = 1};
  const auto add = [&](const std::string& name, double unit) {
    profile.layers.push_back({.name = name,
                              .forward = {unit * 0.001},
                              .backward = {unit * 0.001},
                              .weight = {unit * 0.001},
                              .update = {1e-5},
                              .parameters = {1000},
                              .activations = activations,
                              .kept_for_weights = {activations.value / 2},
                              .crossing = {100},
                              .loose = {60}});
  };
  add("embedding", 0.01);
  for (int i = 0; i < blocks; ++i) {
    add("attention." + std::to_string(i), 5.5);
    add("sum." + std::to_string(i), 0.01);
    add("mlp." + std::to_string(i), 8);
  }
  add("head", 18);
  return profile;
}

inline std::vector<std::string> layers_of(const Profile& profile) {
  std::vector<std::string> names;
  for (const LayerCost& layer : profile.layers) {
    names.push_back(layer.name);
  }
  return names;
}

inline std::vector<DeviceSpec> devices(int count, Bytes memory = {}) {
  std::vector<DeviceSpec> result;
  result.reserve(count);
  for (int i = 0; i < count; ++i) {
    result.push_back({.name = "cpu:" + std::to_string(i), .memory = memory});
  }
  return result;
}

// What the Error says that `act` throws.
template <typename Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace cleave
