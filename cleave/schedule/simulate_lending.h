#pragma once

#include <vector>

#include "cleave/schedule/simulate.h"
#include "cleave/schedule/turns.h"

namespace cleave {

// Runs the rows on paper, by ranks that lend each other a hand, from time zero:
// a row of the timeline is what one rank did, in its own row or another's. The
// one who completes a stage's gradients also updates it. Throws Error when the
// costs do not match the stages.
Timeline simulate_lending(const std::vector<SharedRow>& rows,
                          const ScheduleCosts& costs);

// Many steps that follow each other.
struct LentSteps {
  Seconds period;           // from step to step, as period() has it for ranks
                            // that do not lend
  std::vector<Bytes> most;  // that each rank needed
};
LentSteps simulate_lent_steps(const std::vector<SharedRow>& rows,
                              const ScheduleCosts& costs);

}  // namespace cleave
