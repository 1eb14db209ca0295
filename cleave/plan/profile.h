#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cleave/plan/plan.h"
#include "cleave/units.h"

namespace cleave {

// What one layer costs for one microbatch, measured on one device.
struct LayerCost {
  std::string name;
  Seconds forward;
  Seconds backward;  // gradients of the inputs, and all that cannot wait
  Seconds weight;    // gradients of the weights, where they can wait
  Seconds update;    // the optimizer, once per step
  Bytes parameters;
  Bytes copies;  // of parameters, in the precision it computes in; and the
                 // optimizer's counters of steps
  // What stays in memory from forward to backward because of this layer, when
  // it follows the layer before it on the same device. Below zero where it
  // frees more than it makes: earlier results that nothing needs any more.
  Bytes activations;
  Bytes kept_for_weights;  // what stays between backward and weights
  Bytes working;           // peak of F, above what it leaves in memory
  // Peaks above what there was before. The gradients of the weights are there
  // already: plans count them all the time, so the first pass needs no more.
  Bytes backward_need;  // of a B that leaves a W
  Bytes whole_need;     // of a B that leaves none
  Bytes weight_need;    // of a W
  Bytes crossing;       // all values that cross a cut right behind this layer
  Bytes loose;          // of those, what no layer so far keeps

  bool operator==(const LayerCost&) const = default;
};

// What an empty stage takes for a microbatch; the update once per step. Every
// stage takes that once, beside its layers.
struct StageOverhead {
  Seconds forward;
  Seconds backward;
  Seconds weight;
  Seconds update;

  bool operator==(const StageOverhead&) const = default;
};

inline constexpr auto kLayerTimes = {&LayerCost::forward,
                                     &LayerCost::backward,
                                     &LayerCost::weight,
                                     &LayerCost::update};
inline constexpr auto kOverheadTimes = {&StageOverhead::forward,
                                        &StageOverhead::backward,
                                        &StageOverhead::weight,
                                        &StageOverhead::update};

// What stays of a layer's microbatch, and what is needed while it computes.
inline constexpr auto kLayerSizes = {&LayerCost::activations,
                                     &LayerCost::kept_for_weights,
                                     &LayerCost::crossing,
                                     &LayerCost::loose};
inline constexpr auto kLayerNeeds = {&LayerCost::working,
                                     &LayerCost::backward_need,
                                     &LayerCost::whole_need,
                                     &LayerCost::weight_need};

// A model as the planner sees it: costs, no tensors.
struct Profile {
  std::string model;
  std::int64_t microbatch = 1;  // samples in the microbatch that was measured
  std::string device;           // what it was measured on
  int measured = 0;  // kinds of layers; those of a kind cost the same
  StageOverhead overhead;
  std::vector<LayerCost> layers;
  std::vector<LayerTie> ties;

  bool operator==(const Profile&) const = default;
};

// What a microbatch takes in all layers.
inline Seconds microbatch_time(const Profile& profile) {
  Seconds all;
  for (const LayerCost& layer : profile.layers) {
    all += layer.forward + layer.backward + layer.weight;
  }
  return all;
}

}  // namespace cleave
