#pragma once

#include "cleave/plan/measure/profiler.h"

namespace cleave {

// Profiles the model with part of `sample` (at least one microbatch) and plans
// it over the devices. Where the request leaves the number of microbatches
// open, the model is profiled with microbatches of two sizes, and of a few
// numbers per device the one is taken that is predicted to be fastest.
Plan plan(const Model& model,
          const Devices& devices,
          const Batch& sample,
          const ProfileOptions& options,
          const PlanRequest& request);

// What a profile with microbatches of `samples` would be, on the line through
// two that were measured. REQUIRES: two profiles of one model and of different
// sizes.
Profile between(const Profile& small, const Profile& large, double samples);

// The fastest of the plans with these numbers of microbatches, by profiles with
// microbatches of two sizes, or twice the same.
Plan plan_with_one_of(const std::vector<int>& counts,
                      const Profile& small,
                      const Profile& large,
                      const std::vector<DeviceSpec>& devices,
                      PlanRequest request);

// How the planner sees local devices.
std::vector<DeviceSpec> device_specs(const Devices& devices);

}  // namespace cleave
