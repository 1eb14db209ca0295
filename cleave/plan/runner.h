#pragma once

#include <string>
#include <vector>

#include "cleave/plan/plan.h"

namespace cleave {

// What a plan does not say itself. The defaults allow stealing.
struct RunnerFacts {
  bool wants_stealing = true;
  bool ranks_are_processes = false;
  bool shares_cores = false;  // some devices do
  Seconds action;             // an F or B on the mean; zero: not known
};

Seconds mean_action(const std::vector<StagePrediction>& stages);

// Why the ranks of this plan do their rows in order; empty: they steal work
// from each other. They do where all are CPU threads of one process with cores
// of their own, and there is one replica whose actions are long enough.
std::string why_in_order(const Plan& plan, const RunnerFacts& facts);

// The plan, and where it steals but cannot, the plan in order, with the reason
// and a prediction that fits. REQUIRES: check_plan() accepts it.
Plan with_runner(Plan plan, const RunnerFacts& facts);

}  // namespace cleave
