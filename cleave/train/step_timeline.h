#pragma once

#include <cstdint>
#include <vector>

#include "cleave/train/trainer.h"

namespace cleave {

struct PassResult;

// From what came of every rank's row, all on one clock. `places`: the ranks of
// each pipeline.
StepTimeline timeline_of(const std::vector<PassResult>& results,
                         int places,
                         std::int64_t step);

}  // namespace cleave
