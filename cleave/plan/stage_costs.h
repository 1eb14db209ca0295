#pragma once

#include "cleave/plan/make_plan.h"

// From costs of layers to costs of stages. For the planner only.
namespace cleave {

// The task, and what the layers cost for one microbatch of it.
struct ScaledRequest {
  ScaledRequest(const Profile& measured,
                const PlanTask& wanted,
                int microbatches_of_each);

  PlanTask task;
  int microbatches;
  Profile profile;
};

// What the request asks for, or what it leaves to the planner.
int microbatches_for(int devices, const PlanTask& task);

// How long a message behind this layer takes.
Seconds message_time(const LayerCost& layer, const PlanTask& task);

// What parameters of this size need all the time, beside copies in another
// precision: themselves, gradients, states, and sums while replicas add up.
Bytes parameter_memory(Bytes parameters, const PlanTask& task);

// The layers from `first` to before `end` on this device.
StagePrediction stage_cost(const ScaledRequest& scaled,
                           const DeviceSpec& device,
                           int first,
                           int end);

// The layers of a stage whose gradients replicas sum together: runs, from the
// last layer to the first, of at least `bucket` bytes of parameters. A layer
// without parameters is in none; at least one bucket, which may be empty.
std::vector<std::vector<std::string>> buckets_of(const Profile& profile,
                                                 int first,
                                                 int end,
                                                 Bytes bucket);

}  // namespace cleave
