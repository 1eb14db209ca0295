#pragma once

#include <vector>

#include "cleave/schedule/memory.h"
#include "cleave/schedule/simulate.h"
#include "cleave/units.h"

// What waits in memory between stages: made by one, not yet taken by the other.
namespace cleave {

// For every rank, the most that waits at the same time in the memory of the one
// that made it, when the schedule runs as the timeline says.
// REQUIRES: the timeline is of the schedule; one entry of `stages` per stage.
std::vector<Bytes> waiting_bytes(const Schedule& schedule,
                                 const Timeline& timeline,
                                 const std::vector<StageBytes>& stages);

// For every rank, the most that it needs with all that waits, where ranks take
// whatever time they take, each doing its row in order: what somebody made
// waits until another of his actions can only begin because it was taken.
// REQUIRES: the schedule has no messages yet, and problems(schedule) is empty;
// one entry of `stages` per stage.
std::vector<Bytes> most_bytes_in_order(const Schedule& schedule,
                                       const std::vector<StageBytes>& stages);

}  // namespace cleave
