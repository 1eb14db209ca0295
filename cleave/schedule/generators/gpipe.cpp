#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/generators/row_writer.h"

namespace cleave {

Schedule gpipe(const ScheduleShape& shape) {
  Schedule schedule{shape.stages(), shape.microbatches, {}, {}};
  for (StageId stage; stage.value < schedule.stages(); ++stage.value) {
    RowWriter row(shape.microbatches);
    row.add_rest(Op::forward, stage);
    row.add_rest(Op::backward, stage);
    schedule.rows.push_back(row.take());
  }
  return schedule;
}

}  // namespace cleave
