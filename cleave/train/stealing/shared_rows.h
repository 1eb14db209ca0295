#pragma once

#include <optional>
#include <vector>

#include "cleave/schedule/memory.h"
#include "cleave/schedule/order.h"

namespace cleave {

// Actions of a row that one thread does one after the other: at most one that
// computes, what it receives before, and what it sends behind.
struct WorkUnit {
  std::size_t first = 0;  // positions in the row
  std::size_t end = 0;
  std::vector<int> needs;        // units of the same row that must have ended
  std::vector<Action> receives;  // what must have arrived
  Bytes memory;  // that it can add to what its row needs in order
};

struct SharedRow {
  const Row* row = nullptr;
  std::vector<WorkUnit> units;
  Bytes slack;  // what units that run beside the first may add
};

// The rows of a schedule as several threads can do them. Of a stage, two units
// that compute the same kind never run at the same time, and what adds to its
// gradients does so in the row's order: its modules need not be thread-safe,
// and sums keep their bits. Keeps a reference to the schedule. `slack`: by
// rank.
std::vector<SharedRow> shared_rows(const Order& order,
                                   const std::vector<StageBytes>& stages,
                                   const std::vector<Bytes>& slack);

}  // namespace cleave
