#pragma once

#include <string>
#include <vector>

#include "cleave/plan/plan.h"

namespace cleave {

// Why the ranks of this plan do their rows in order; empty: they steal work
// from each other. They do where all are CPU threads of one process with cores
// of their own, and there is one replica whose actions are long enough.
std::string why_in_order(const Plan& plan,
                         const std::vector<StagePrediction>& stages,
                         const PlanRequest& request,
                         bool shares_cores);

}  // namespace cleave
