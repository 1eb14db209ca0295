#pragma once

#include <cstdint>
#include <vector>

#include "cleave/schedule/simulate.h"
#include "cleave/train/rank_trainer.h"
#include "cleave/units.h"

namespace cleave {

// When every rank did what in a step, in its row or another's, messages
// included, from the step's first computation on.
struct StepTimeline {
  std::int64_t step = 0;
  Timeline measured;
  Seconds zero;  // when that was, on the clock of rank 0's host
};

// From what came of every rank's row, all on one clock. `places`: the ranks of
// each pipeline.
StepTimeline timeline_of(const std::vector<StepResult>& results,
                         int places,
                         std::int64_t step);

}  // namespace cleave
