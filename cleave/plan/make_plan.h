#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cleave/plan/plan.h"
#include "cleave/plan/profile.h"
#include "cleave/policies.h"
#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

namespace cleave {

// A device as the planner sees it.
struct DeviceSpec {
  std::string name;  // "cpu:0"
  double speed = 1;  // relative to the device the profile was measured on
  int core = -1;     // of devices that share one core; below zero: none does
  Bytes memory;      // its budget; zero: without limit
};

// What planning takes from the training and from the devices.
struct PlanFacts {
  std::int64_t batch = 0;  // samples of a step
  int state_copies = 2;    // optimizer values kept per parameter (AdamW: 2)
  bool clips = false;      // gradients, by the norm of all stages
  Bytes bucket = kDefaultBucket;
  bool ranks_are_processes = false;
  MessageSpeed messages;
  // The schedule that the request names as a file, once it was read.
  std::optional<Schedule> given;
};

// What is planned: facts and wishes together.
struct PlanTask : PlanFacts, PlanRequest {};

// The task with the schedule of the file that it names, and with that one's
// number of microbatches. Reads the file only where that is still to be done.
// Throws Error where it cannot, or where another number is asked for.
PlanTask with_given_schedule(PlanTask task);

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
               const PlanTask& task);

}  // namespace cleave
