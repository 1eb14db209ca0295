#pragma once

#include "cleave/plan/plan.h"
#include "cleave/schedule/schedule.h"

// What all ways to plan a model share. For the planner only.
namespace cleave {

// Fewer devices are taken unless more are faster by this factor: a prediction
// is not better than that, and a device must be paid for.
inline constexpr double kWorthADevice = 1.01;

// The request, and what the layers cost for one microbatch of it.
struct PlanBasis {
  PlanBasis(const Profile& measured, const PlanRequest& wanted, int devices);

  PlanRequest request;
  int microbatches;
  Profile profile;
};

// How long a message behind this layer takes.
Seconds message_time(const LayerCost& layer, const PlanRequest& request);

// What parameters of this size need all the time, beside copies in another
// precision.
Bytes parameter_memory(Bytes parameters, const PlanRequest& request);

// The layers from `first` to before `end` on this device.
StagePlan stage_of(const PlanBasis& basis,
                   const DeviceSpec& device,
                   int first,
                   int end);

// What F and B take longer that compute with so many bytes of another device's.
Seconds foreign_time(Bytes bytes,
                     Seconds ForeignCost::*part,
                     const Profile& profile);

// Adds that to the stages whose neighbours are on devices with other cores.
// `speeds`: of their devices. REQUIRES: they come from stage_of().
void add_foreign(const Profile& profile,
                 const std::vector<double>& speeds,
                 std::vector<StagePlan>& stages);

// Fills in the step time, the bubble and the peaks, from the plan's own stages
// and its schedule.
void predict(Plan& plan, const Schedule& schedule);

// The same of devices that are as unsteady and as unequal as the profile found
// them, that also do what the caller does between steps, and that lend if the
// plan says so. REQUIRES: predict() was called.
void predict_unsteady(Plan& plan,
                      const Schedule& schedule,
                      const Profile& profile,
                      Seconds caller);

// Whether every device's predicted peak is within its budget.
bool fits(const Plan& plan);

}  // namespace cleave
