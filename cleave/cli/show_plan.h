#pragma once

#include <string>

#include "cleave/plan/plan.h"

namespace cleave {

// The plan as a table and its schedule drawn below it.
std::string plan_text(const Plan& plan);

// The plan's schedule as an SVG image.
std::string plan_svg(const Plan& plan);

}  // namespace cleave
