#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cleave/plan/plan.h"
#include "cleave/plan/profile.h"
#include "cleave/units.h"

namespace cleave {

// A device as the planner sees it.
struct DeviceSpec {
  std::string name;  // "cpu:0"
  double speed = 1;  // relative to the device the profile was measured on
  int core = -1;     // of devices that share one core; below zero: none does
  Bytes memory;      // its budget; zero: without limit
};

// How many microbatches the request fixes, by itself or by the schedule that it
// names; 0: it leaves that to the planner.
int wanted_microbatches(const PlanRequest& request);

// Cuts the profiled model over the devices, in their order: the first of them
// are taken, and for further replicas those behind. Schedule, stages per device
// and cuts are chosen together, by the predicted time from step to step. Where
// the profile's microbatch has another number of samples than the plan's, costs
// are taken to grow with the samples. All predicted times are whole
// picoseconds, which JSON keeps. Throws Error when there are more stages than
// layers or devices, or when no cut fits the devices' memory; the error then
// names the smallest budget that would fit.
Plan make_plan(const Profile& profile,
               const std::vector<DeviceSpec>& devices,
               const PlanRequest& request);

}  // namespace cleave
