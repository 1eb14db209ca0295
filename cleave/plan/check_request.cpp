#include "cleave/plan/check_request.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "cleave/counted.h"
#include "cleave/error.h"
#include "cleave/schedule/generators/registry.h"

namespace cleave {
namespace {

// "between 1 and 3 stages", "1 stage"
std::string up_to(std::int64_t most, const std::string& noun) {
  return (most == 1 ? "" : "between 1 and ") + counted(most, noun);
}

// 0: any number.
int most_stages_per_device(const PlanRequest& request) {
  if (request.stages_per_device > 0 || names_file(request.schedule)) {
    return request.stages_per_device;
  }
  return request.schedule == kAutoSchedule
             ? 2
             : stages_per_rank_of(request.schedule);
}

void check_counts(int layers, int devices, const PlanRequest& request) {
  if (request.stages > layers) {
    fail("cannot cut " + counted(layers, "layer") + " into " +
             counted(request.stages, "stage"),
         "Ask for " + up_to(layers, "stage") + ".");
  }
  const int per_device = most_stages_per_device(request);
  if (per_device > 0 && request.stages > per_device * devices) {
    fail("cannot put " + counted(request.stages, "stage") + " on " +
             counted(devices, "device"),
         "Ask for " + up_to(std::int64_t{per_device} * devices, "stage") +
             ", or name more devices.");
  }
  if (request.microbatches > request.batch) {
    fail("cannot make " + std::to_string(request.microbatches) +
             " microbatches of a batch of " + counted(request.batch, "sample"),
         "Give every microbatch at least one sample.");
  }
  if (request.replicas > devices) {
    fail("cannot put " + counted(request.replicas, "replica") + " on " +
             counted(devices, "device"),
         "Ask for " + up_to(devices, "replica") + ", or name more devices.");
  }
  if (request.replicas > 1 &&
      request.batch / request.replicas < std::max(1, request.microbatches)) {
    fail("a batch of " + counted(request.batch, "sample") +
             " is too small for " + counted(request.replicas, "replica") +
             (request.microbatches > 1
                  ? " with " + counted(request.microbatches, "microbatch")
                  : ""),
         "Give every microbatch of every replica at least one sample.");
  }
}

bool is_time(Seconds time) {
  return std::isfinite(time.value) && time.value >= 0;
}

void check_layer(const LayerCost& layer) {
  if (!std::ranges::all_of(kLayerTimes,
                           [&](auto time) { return is_time(layer.*time); }) ||
      std::min({layer.parameters,
                layer.kept_for_weights,
                layer.crossing,
                layer.loose}) < Bytes{0} ||
      std::ranges::any_of(kLayerNeeds,
                          [&](auto need) { return layer.*need < Bytes{0}; })) {
    fail("layer '" + layer.name +
             "' of the profile has a cost below zero, "
             "or one that is no number",
         "Profile the model again.");
  }
}

void check_profile(const Profile& profile) {
  if (profile.layers.empty() || profile.microbatch < 1) {
    fail("the profile of '" + profile.model + "' holds no measured layer",
         "Profile a model with at least one layer.");
  }
  if (!std::ranges::all_of(kOverheadTimes, [&](auto time) {
        return is_time(profile.overhead.*time);
      })) {
    fail("the overhead of the profile is below zero, or no number",
         "Profile the model again.");
  }
  std::ranges::for_each(profile.layers, check_layer);
  for (const LayerTie& tie : profile.ties) {
    if (tie.earlier < 0 || tie.earlier >= tie.later ||
        tie.later >= std::ssize(profile.layers)) {
      fail("layers " + std::to_string(tie.earlier) + " and " +
               std::to_string(tie.later) +
               " of the profile cannot share a weight",
           "Profile the model again.");
    }
  }
}

}  // namespace

void check_request(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanRequest& request) {
  check_profile(profile);
  if (devices.empty()) {
    fail("there is no device to put a stage on", "Name at least one device.");
  }
  for (const DeviceSpec& device : devices) {
    if (!(device.speed > 0) || device.memory.value < 0) {
      fail("device '" + device.name + "' has no sensible speed and memory",
           "Give it a speed above 0 and a memory of 0 (no limit) or more.");
    }
  }
  if (request.batch < 1 || request.stages < 0 ||
      request.stages_per_device < 0 || request.microbatches < 0 ||
      request.replicas < 0 || !(request.sum_bandwidth > 0) ||
      request.bucket < Bytes{} || request.state_copies < 0 ||
      !(request.message_latency.value >= 0) ||
      !(request.message_bandwidth > 0)) {
    fail("the request for a plan has a number that is too small",
         "Ask for a batch of at least 1 and a bandwidth above 0; everything "
         "else is 0 or more.");
  }
  check_counts(static_cast<int>(profile.layers.size()),
               static_cast<int>(devices.size()),
               request);
}

}  // namespace cleave
