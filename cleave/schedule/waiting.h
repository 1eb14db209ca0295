#pragma once

#include <vector>

#include "cleave/schedule/simulate.h"
#include "cleave/units.h"

// What waits in memory between stages: made by one, not yet taken by the other.
namespace cleave {

// Of one microbatch, in the memory of the rank that made it.
struct StageMessages {
  Bytes forward;   // from the stage's F until the next stage's
  Bytes backward;  // from its B until that of the stage before
};

// For every rank, the most that waits at the same time when the schedule runs
// as the timeline says. REQUIRES: the timeline is of the schedule; one entry of
// `messages` per stage.
std::vector<Bytes> waiting_bytes(const Schedule& schedule,
                                 const Timeline& timeline,
                                 const std::vector<StageMessages>& messages);

}  // namespace cleave
