#pragma once

#include <vector>

#include "cleave/schedule/costs.h"
#include "cleave/schedule/op.h"
#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

// What a schedule makes ranks keep in memory, action by action.
namespace cleave {

// For every stage, the most microbatches of which it keeps something: from F to
// W, or to B in a stage that has no W.
// REQUIRES: problems(schedule) is empty.
std::vector<int> most_kept(const Schedule& schedule);

// For every rank, of every action of its row.
// REQUIRES: problems(schedule) is empty; one entry of `stages` per stage.
std::vector<std::vector<MemoryUse>> memory_uses(
    const Schedule& schedule, const std::vector<StageBytes>& stages);

// For every rank, an upper bound of what it needs when every rank does its row
// in order, messages in flight included, for any timing.
// REQUIRES: as above.
std::vector<Bytes> peak_bytes(const Schedule& schedule,
                              const std::vector<StageBytes>& stages);

// What the action leaves in its rank's memory for the stages that take it.
HandedOn handed_on_by(const Action& action,
                      const std::vector<StageBytes>& stages);

// The actions that take what this one hands on.
std::vector<Action> takers_of(const Action& action, const StageGraph& graph);

}  // namespace cleave
