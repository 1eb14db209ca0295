#pragma once

#include <optional>
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

// The same of ranks that do only what is theirs, in order, in any memory.
Timeline simulate_own(const std::vector<SharedRow>& rows,
                      const ScheduleCosts& costs);

// One of many ways in which times differ from those planned, as on machines
// that have other work too. The same for the same numbers, everywhere.
struct Disturbance {
  unsigned number = 0;
  double of_actions = 0.2;  // by what share one takes more or less at most,
  double of_ranks = 0.1;    // and a rank, for all it does
  // One action in a hundred takes so many times longer.
  double held_up = 3;
};

// Many steps that follow each other.
struct LentSteps {
  Seconds period;           // from step to step, as period() has it for ranks
                            // that do not lend
  std::vector<Bytes> most;  // that each rank needed
};
LentSteps simulate_lent_steps(
    const std::vector<SharedRow>& rows,
    const ScheduleCosts& costs,
    std::optional<Disturbance> disturbance = std::nullopt);

// The same of ranks that do only what is theirs.
Seconds simulate_own_steps(const std::vector<SharedRow>& rows,
                           const ScheduleCosts& costs,
                           std::optional<Disturbance> disturbance);

// How much that is to do: the actions of all those steps, at least one.
std::int64_t actions_in_lent_steps(const std::vector<SharedRow>& rows);

}  // namespace cleave
