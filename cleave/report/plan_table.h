#pragma once

#include <string>

#include "cleave/plan/plan.h"

namespace cleave {

// Who computes what and what that is predicted to cost: a heading, a table of
// at most 100 columns, and the prediction. Every stage is a row: its backward
// includes the weight gradients, its peak is its device's, and its load is its
// time as a share of the slowest stage's. A plan without a prediction has
// dashes instead. Long names lose their beginning. `ascii` draws without
// Unicode. REQUIRES: a plan that check_plan() takes.
std::string plan_table(const Plan& plan, bool ascii = false);

}  // namespace cleave
