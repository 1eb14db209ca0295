#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/generators/row_writer.h"

namespace cleave {

Schedule one_f_one_b(const ScheduleShape& shape) {
  Schedule schedule{shape.stages(), shape.microbatches, {}, {}};
  for (StageId stage; stage.value < schedule.stages(); ++stage.value) {
    RowWriter row(shape.microbatches);
    // While the first microbatch travels to the last stage and back, a stage
    // can do as many forwards as there are stages behind it.
    const int ahead = schedule.stages() - 1 - stage.value;
    for (int i = 0; i < ahead; ++i) {  // fill:   F
      row.add(Op::forward, stage);
    }
    for (int i = 0; i < shape.microbatches; ++i) {  // steady: F B, drain: B
      row.add(Op::forward, stage);
      row.add(Op::backward, stage);
    }
    schedule.rows.push_back(row.take());
  }
  return schedule;
}

}  // namespace cleave
