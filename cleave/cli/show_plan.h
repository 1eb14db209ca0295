#pragma once

#include <string>

#include "cleave/comm/devices.h"
#include "cleave/model/precision.h"
#include "cleave/plan/plan.h"
#include "cleave/schedule/simulate.h"

namespace cleave {

// One step of the plan as it is predicted.
Timeline plan_timeline(const Plan& plan);

// The plan as a table and its schedule drawn below it.
std::string plan_text(const Plan& plan);

// A line that advises against a precision that this machine is slow in, from a
// measurement; else nothing.
std::string precision_advice(Precision precision, const Devices& devices);

// The plan's schedule as an SVG image.
std::string plan_svg(const Plan& plan);

}  // namespace cleave
