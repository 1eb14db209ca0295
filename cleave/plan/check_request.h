#pragma once

#include <vector>

#include "cleave/plan/make_plan.h"

namespace cleave {

// Throws Error where numbers of the profile, the devices or the request make no
// sense, or where so few devices, layers and samples cannot be what is asked
// for. Whether memory suffices is for the planner to find out.
void check_request(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanTask& task);

}  // namespace cleave
