#include "cleave/schedule/registry.h"

namespace cleave {

Schedule gpipe(int stages, int microbatches) {
  Schedule schedule{stages, microbatches, {}};
  for (StageId stage; stage.value < stages; ++stage.value) {
    Row& row = schedule.rows.emplace_back();
    for (int m = 0; m < microbatches; ++m) {
      row.push_back({Op::forward, Microbatch{m}, stage});
    }
    for (int m = 0; m < microbatches; ++m) {
      row.push_back({Op::backward, Microbatch{m}, stage});
    }
  }
  return schedule;
}

}  // namespace cleave
