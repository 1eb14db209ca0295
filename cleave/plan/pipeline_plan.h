#pragma once

#include <vector>

#include "cleave/plan/plan.h"

namespace cleave {

// The best plan of one pipeline on the first of these devices, as many as pay;
// of several replicas, of which each has as many, that of the first. The
// request's batch is that of the pipeline. Throws Error where no number of
// devices gives what is asked for, or where nothing fits the memory. REQUIRES:
// the request was checked.
Plan pipeline_plan(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanRequest& request);

}  // namespace cleave
