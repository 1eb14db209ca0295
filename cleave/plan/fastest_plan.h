#pragma once

#include <functional>
#include <vector>

#include "cleave/plan/plan.h"

namespace cleave {

// The fastest of the plans that `make` gives for these numbers, which may throw
// Error for some of them. A plan takes the place of one for an earlier number
// only where it is faster by `factor`. Throws the last Error where there is no
// plan at all. REQUIRES: there is a number.
Plan fastest_plan(const std::vector<int>& numbers,
                  double factor,
                  const std::function<Plan(int)>& make);

}  // namespace cleave
