#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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
  Bytes copies;  // of parameters, in the precision it computes in; and what
                 // an optimizer counts
  // What stays in memory from forward to backward because of this layer, when
  // it follows the layer before it on the same device. Below zero where it lets
  // go of more than it makes: of results before it that nobody needs any more.
  Bytes activations;
  Bytes kept_for_weights;  // what stays between backward and weights
  // Needed at most: while forward computes, beside what it makes; and above
  // what there was before,
  Bytes working;
  Bytes backward_need;      // by a backward that leaves weights to wait,
  Bytes whole_need;         // by one that does all,
  Bytes first_whole_need;   // by the first such one, which makes gradients,
  Bytes weight_need;        // by weights that waited,
  Bytes first_weight_need;  // and by the first of those
  Bytes crossing;  // all values that cross a cut right behind this layer
  Bytes loose;     // of those, what no layer so far keeps

  bool operator==(const LayerCost&) const = default;
};

// What any stage takes for a microbatch beside its layers; the update once per
// step.
struct StageOverhead {
  Seconds forward;
  Seconds backward;
  Seconds weight;
  Seconds update;

  bool operator==(const StageOverhead&) const = default;
};

// What F and B take longer where what they compute with comes from another
// device: it lies in caches that are not theirs, and so does, when it is used
// again, the memory that went there. More for more bytes.
struct ForeignCost {
  Bytes bytes;  // of the values that were measured; zero: none were
  Seconds forward;
  Seconds backward;

  bool operator==(const ForeignCost&) const = default;
};

inline constexpr auto kLayerTimes = {&LayerCost::forward,
                                     &LayerCost::backward,
                                     &LayerCost::weight,
                                     &LayerCost::update};
inline constexpr auto kForeignTimes = {&ForeignCost::forward,
                                       &ForeignCost::backward};
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
                                     &LayerCost::first_whole_need,
                                     &LayerCost::weight_need,
                                     &LayerCost::first_weight_need};

// A model as the planner sees it: costs, no tensors.
struct Profile {
  std::string model;
  std::int64_t microbatch = 1;  // samples in the microbatch that was measured
  std::string device;           // what it was measured on
  int measured = 0;             // layers timed; the others equal one of them
  // How unsteady the device was: by this share at most, mostly, what takes as
  // long as a stage differed from its median.
  double spread = 0;
  // How unequal devices were: by this share at most, mostly, one differed from
  // the mean of those that were measured at the same time.
  double uneven = 0;
  // By what share a stage's action takes longer on a device that did not do the
  // one before: what it needs is in the caches of another.
  double moving = 0;
  StageOverhead overhead;
  ForeignCost foreign;
  std::vector<LayerCost> layers;

  bool operator==(const Profile&) const = default;
};

// What a microbatch takes in all layers.
inline Seconds turn_of(const Profile& profile) {
  Seconds all;
  for (const LayerCost& layer : profile.layers) {
    all += layer.forward + layer.backward + layer.weight;
  }
  return all;
}

// As JSON, so that a profile can be kept and planned with again. Times are kept
// to the picosecond. Reading is as strict as for a plan.
std::string to_json(const Profile& profile);
Profile parse_profile(const std::string& json, const std::string& source);
void save_profile(const Profile& profile, const std::filesystem::path& file);
Profile load_profile(const std::filesystem::path& file);

}  // namespace cleave
