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

}  // namespace cleave
