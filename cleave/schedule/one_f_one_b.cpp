#include <algorithm>

#include "cleave/schedule/registry.h"

namespace cleave {
namespace {

Row row_of(StageId stage, int stages, int microbatches) {
  const auto f = [&](int m) {
    return Action{Op::forward, Microbatch{m}, stage};
  };
  const auto b = [&](int m) {
    return Action{Op::backward, Microbatch{m}, stage};
  };
  Row row;
  // While the first microbatch travels to the last stage and back, a stage can
  // do as many forwards as there are stages behind it.
  const int ahead = std::min(stages - 1 - stage.value, microbatches);
  for (int m = 0; m < ahead; ++m) {  // fill:   F
    row.push_back(f(m));
  }
  for (int m = ahead; m < microbatches; ++m) {  // steady: F B
    row.push_back(f(m));
    row.push_back(b(m - ahead));
  }
  for (int m = microbatches - ahead; m < microbatches; ++m) {  // drain:  B
    row.push_back(b(m));
  }
  return row;
}

}  // namespace

Schedule one_f_one_b(int stages, int microbatches) {
  Schedule schedule{stages, microbatches, {}};
  for (StageId stage; stage.value < stages; ++stage.value) {
    schedule.rows.push_back(row_of(stage, stages, microbatches));
  }
  return schedule;
}

}  // namespace cleave
