#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/generators/row_writer.h"

// The two schedules that Qi et al., Zero Bubble Pipeline Parallelism (2023),
// made by hand.
namespace cleave {
namespace {

// With `depth` 1 the forwards ahead are those of 1F1B; with 2 they also cover
// the time until the first backward is there. Later ranks have fewer ahead and
// so may put off as many more weight gradients in the same memory: until the
// gradients that the ranks before them wait for are on their way.
Row zb_h_row(StageId stage, const ScheduleShape& shape, int depth) {
  const int ahead = depth * (shape.ranks - 1 - stage.value);
  const int put_off = depth * stage.value;
  RowWriter row(shape.microbatches);
  for (int i = 0; i < ahead; ++i) {  // fill:   F
    row.add(Op::forward, stage);
  }
  for (int i = 0; i < shape.microbatches; ++i) {  // F B, F B W, B W
    row.add(Op::forward, stage);
    row.add(Op::backward, stage);
    if (i >= put_off) {
      row.add(Op::weight, stage);
    }
  }
  row.add_rest(Op::weight, stage);  // drain:  W
  return row.take();
}

Schedule zb_h(const ScheduleShape& shape, int depth) {
  Schedule schedule{shape.stages(), shape.microbatches, {}, {}};
  for (StageId stage; stage.value < schedule.stages(); ++stage.value) {
    schedule.rows.push_back(zb_h_row(stage, shape, depth));
  }
  return schedule;
}

}  // namespace

Schedule zb_h1(const ScheduleShape& shape) {
  return zb_h(shape, 1);
}

Schedule zb_h2(const ScheduleShape& shape) {
  return zb_h(shape, 2);
}

}  // namespace cleave
