#pragma once

#include <cstdint>
#include <vector>

#include "cleave/plan/make_plan.h"

namespace cleave {

// The samples of a batch's largest microbatch.
std::int64_t size_of_microbatch(std::int64_t batch, int microbatches);

// Those of the replica that has most.
std::int64_t batch_of_replica(std::int64_t batch, int replicas);

// The profile with microbatches of `samples`, on the line through two profiles
// that were measured. REQUIRES: both are of one model, with microbatches of
// different sizes.
Profile between(const Profile& small, const Profile& large, double samples);

// The fastest of the plans with these numbers of microbatches. `small` and
// `large`: profiles with microbatches of two sizes, or twice the same.
Plan plan_with_one_of(const std::vector<int>& counts,
                      const Profile& small,
                      const Profile& large,
                      const std::vector<DeviceSpec>& devices,
                      PlanTask task);

}  // namespace cleave
