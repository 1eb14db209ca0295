#pragma once

#include <optional>
#include <vector>

#include "cleave/schedule/memory.h"
#include "cleave/schedule/simulate.h"

namespace cleave {

// What a schedule is wanted for: a chain of stages on one replica, which may
// differ in everything and be placed anywhere.
struct SearchProblem {
  std::vector<Rank> placement;  // the rank of every stage
  int microbatches = 1;
  ScheduleCosts costs;
  std::vector<StageBytes> memory;  // one per stage
  std::vector<Bytes> limits;       // one per rank; zero: none
};

// A schedule with a short period (simulate.h) that keeps every rank within its
// limit, not counting messages in flight; of equally short ones, one that keeps
// less. Never worse than a schedule of the registry that has this placement and
// fits. A stage whose weight gradients take no time has no W. Nothing when no
// schedule was found that fits. The same problem always gives the same
// schedule, after effort that is bounded by counting, not by a clock. Throws
// Error where the numbers of a problem do not fit together.
std::optional<Schedule> search_schedule(const SearchProblem& problem);

// No schedule can have a shorter period: the work of the busiest rank.
Seconds least_period(const ScheduleCosts& costs,
                     const std::vector<Rank>& placement,
                     int microbatches);

}  // namespace cleave
