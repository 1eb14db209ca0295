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
int most_stages_per_device(const PlanTask& task) {
  if (task.stages_per_device > 0 || names_file(task.schedule)) {
    return task.stages_per_device;
  }
  return task.schedule == kAutoSchedule ? 2 : stages_per_rank_of(task.schedule);
}

void check_counts(int layers, int devices, const PlanTask& task) {
  if (task.stages > layers) {
    fail("cannot cut " + counted(layers, "layer") + " into " +
             counted(task.stages, "stage"),
         "Ask for " + up_to(layers, "stage") + ".");
  }
  const int per_device = most_stages_per_device(task);
  if (per_device > 0 && task.stages > per_device * devices) {
    fail("cannot put " + counted(task.stages, "stage") + " on " +
             counted(devices, "device"),
         "Ask for " + up_to(std::int64_t{per_device} * devices, "stage") +
             ", or name more devices.");
  }
  if (task.microbatches > task.batch) {
    fail("cannot make " + std::to_string(task.microbatches) +
             " microbatches of a batch of " + counted(task.batch, "sample"),
         "Give every microbatch at least one sample.");
  }
  if (task.replicas > devices) {
    fail("cannot put " + counted(task.replicas, "replica") + " on " +
             counted(devices, "device"),
         "Ask for " + up_to(devices, "replica") + ", or name more devices.");
  }
  if (task.replicas > 1 &&
      task.batch / task.replicas < std::max(1, task.microbatches)) {
    fail("a batch of " + counted(task.batch, "sample") + " is too small for " +
             counted(task.replicas, "replica") +
             (task.microbatches > 1
                  ? " with " + counted(task.microbatches, "microbatch")
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
                   const PlanTask& task) {
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
  if (task.batch < 1 || task.stages < 0 || task.stages_per_device < 0 ||
      task.microbatches < 0 || task.replicas < 0 ||
      !(task.messages.sum_bandwidth > 0) || task.bucket < Bytes{} ||
      task.state_copies < 0 || !(task.messages.latency.value >= 0) ||
      !(task.messages.bandwidth > 0)) {
    fail("the request for a plan has a number that is too small",
         "Ask for a batch of at least 1 and a bandwidth above 0; everything "
         "else is 0 or more.");
  }
  check_counts(static_cast<int>(profile.layers.size()),
               static_cast<int>(devices.size()),
               task);
}

}  // namespace cleave
