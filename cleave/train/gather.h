#pragma once

#include <map>
#include <vector>

#include "cleave/comm/world.h"
#include "cleave/train/rank_trainer.h"

namespace cleave {

// Brings together what the ranks of all processes found. Where all ranks are
// threads of this process there is nothing to do. Otherwise every process calls
// the same functions in the same order.
class Gather {
 public:
  // Borrows the world, which must outlive it.
  explicit Gather(World& world);

  // Of all ranks, by rank, on every process, with spans on the clock of rank
  // 0's host. `own`: of the local ranks; of one without work, nothing.
  std::vector<PassResult> results(std::vector<PassResult> own);

  // The same for one number of each.
  std::vector<std::uint64_t> numbers(std::vector<std::uint64_t> own);

  // Whether any process says so.
  bool any(bool own);

  // Of all ranks on the process of rank 0; elsewhere only the own ones.
  std::map<StageId, NamedTensors> states(std::map<StageId, NamedTensors> own);

 private:
  std::unique_ptr<Transport> others_;  // null where there are none
};

}  // namespace cleave
