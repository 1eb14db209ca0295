#include <algorithm>

#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/generators/row_writer.h"

namespace cleave {
namespace {

// Counted in actions, all equally long. The first microbatch reaches the rank
// on its way down after `above` of them, comes back up 2 `below` - 1 later, and
// its gradient 2 `above` + 1 after that; until then the rank does forwards. A
// step long enough for all phases is written; see RowWriter for shorter ones.
Row zb_v_row(Rank rank, const ScheduleShape& shape) {
  const int above = rank.value;
  const int below = shape.ranks - rank.value;
  const StageId down{rank.value};
  const StageId up{2 * shape.ranks - 1 - rank.value};
  const int steps = std::max(shape.microbatches, 2 * shape.ranks);
  RowWriter row(shape.microbatches);
  const auto add = [&](std::initializer_list<Op> ops, StageId stage) {
    for (const Op op : ops) {
      row.add(op, stage);
    }
  };
  const auto all = {Op::forward, Op::backward, Op::weight};
  for (int i = 0; i < 2 * below - 1; ++i) {  // until the first is back
    add({Op::forward}, down);
  }
  for (int i = 0; i < above; ++i) {  // until its gradient comes down
    add({Op::forward}, up);
    add({Op::forward}, down);
  }
  for (int i = 0; i < below; ++i) {  // until its gradient comes up
    add(all, up);
  }
  for (int i = 0; i < steps - shape.ranks; ++i) {  // steady
    add(all, down);
    add(all, up);
  }
  for (int i = 0; i < above; ++i) {  // gradients first: others wait for them
    add({Op::backward}, up);
    add({Op::backward}, down);
  }
  for (int i = 0; i < below; ++i) {
    add({Op::backward, Op::weight}, down);
  }
  row.add_rest(Op::weight, up);
  row.add_rest(Op::weight, down);
  return row.take();
}

}  // namespace

Schedule zb_v(const ScheduleShape& shape) {
  Schedule schedule{shape.stages(), shape.microbatches, {}, {}};
  for (Rank rank; rank.value < shape.ranks; ++rank.value) {
    schedule.rows.push_back(zb_v_row(rank, shape));
  }
  return schedule;
}

}  // namespace cleave
