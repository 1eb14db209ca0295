#pragma once

#include <vector>

#include "cleave/device/device.h"
#include "cleave/model/model.h"
#include "cleave/plan/make_plan.h"

// What the planner is told of a model and of devices.
namespace cleave {

// Which layers of the model share weights.
std::vector<LayerTie> layer_ties(const Model& model);

// Whether their ranks are processes, and not threads of this one.
bool are_processes(const Devices& devices);

// Local devices as the planner sees them. Throws Error where check_budgets()
// does.
std::vector<DeviceSpec> device_specs(const Devices& devices);

// Throws Error where there are fewer devices than the plan has ranks.
void check_devices(const Plan& plan, const Devices& devices);

}  // namespace cleave
