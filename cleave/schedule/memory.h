#pragma once

#include <vector>

#include "cleave/schedule/costs.h"
#include "cleave/schedule/op.h"
#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

// What a schedule makes ranks keep in memory, action by action.
namespace cleave {

// For every stage, the most microbatches whose forward has run and whose
// backward has not: how many it must keep in memory. Does not count what a
// split backward keeps for its W: row_peaks() does.
// REQUIRES: problems(schedule) is empty.
std::vector<int> peak_in_flight(const Schedule& schedule);

// For every rank, of every action of its row.
// REQUIRES: problems(schedule) is empty; one entry of `stages` per stage.
std::vector<std::vector<MemoryUse>> memory_uses(
    const Schedule& schedule, const std::vector<StageBytes>& stages);

// For every rank, the most that it needs at any place of its row, all its
// stages together, without messages in flight.
// REQUIRES: as above.
std::vector<Bytes> row_peaks(const Schedule& schedule,
                             const std::vector<StageBytes>& stages);

// For every rank, an upper bound of what it needs when every rank does its row
// in order, messages in flight included, for any timing.
// REQUIRES: as above.
std::vector<Bytes> peak_bytes(const Schedule& schedule,
                              const std::vector<StageBytes>& stages);

// What an action leaves in its rank's memory for the ranks that take it.
struct HandedOn {
  Bytes until_taken;  // until the taker begins
  Bytes until_done;   // until the taker has ended
};
HandedOn handed_on_by(const Action& action,
                      const std::vector<StageBytes>& stages);

// The actions that take what this one hands on.
std::vector<Action> takers_of(const Action& action, const StageGraph& graph);

}  // namespace cleave
