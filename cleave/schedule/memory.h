#pragma once

#include <vector>

#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

// What a schedule makes ranks keep in memory, action by action.
namespace cleave {

// For every stage, the most microbatches whose forward has run and whose
// backward has not: how many it must keep in memory. Does not count what a
// split backward keeps for its W: peak_bytes() does.
// REQUIRES: problems(schedule) is empty.
std::vector<int> peak_in_flight(const Schedule& schedule);

// What a stage keeps of one microbatch.
struct StageBytes {
  Bytes kept;              // from F to B
  Bytes kept_for_weights;  // from B to W, where the schedule has W
  // Above what there was before, at most:
  Bytes forward_need;       // while it does F
  Bytes backward_need;      // a B that leaves a W
  Bytes whole_need;         // a B that leaves none
  Bytes first_whole_need;   // the first of those
  Bytes weight_need;        // a W
  Bytes first_weight_need;  // the first of those
  Bytes gradients;          // of the weights: from the first one on
  Bytes sums;               // beside that, while gradients are made
  Bytes leaving;            // from F until the next stage takes it
  Bytes returning;          // from B until the stage before takes it
  Bytes shared;             // from B until that of the stage before has ended
};

// By how much what a rank keeps changes with a compute action of the stage, and
// what it needs while it does that, above what it kept before, unless it is the
// first to make gradients. `split`: the microbatch has a W. A B without one
// needs what is said here where its whole stage has none.
Bytes change_by(Op op, const StageBytes& bytes, bool split);
Bytes needed_for(Op op, const StageBytes& bytes, bool split);

// What an action of a row does to the memory of its rank.
struct MemoryUse {
  Bytes needed;  // while it runs, above what is kept
  Bytes change;  // of what is kept, when it has ended
};

// For every rank, of every action of its row, messages too.
// REQUIRES: problems(schedule) is empty; one entry of `stages` per stage.
std::vector<std::vector<MemoryUse>> memory_uses(
    const Schedule& schedule, const std::vector<StageBytes>& stages);

// For every rank, the most that it needs at any place of its row, all its
// stages together.
// REQUIRES: problems(schedule) is empty; one entry of `stages` per stage.
std::vector<Bytes> peak_bytes(const Schedule& schedule,
                              const std::vector<StageBytes>& stages);

}  // namespace cleave
