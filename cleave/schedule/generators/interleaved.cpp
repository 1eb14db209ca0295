#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/generators/row_writer.h"

namespace cleave {
namespace {

// Microbatches go through a rank's stages in groups of as many as there are
// ranks: when the last of a group has left the first stage, the first one comes
// round to the second.
class Rounds {
 public:
  Rounds(Rank rank, const ScheduleShape& shape)
      : rank_(rank), shape_(shape), row_(shape.microbatches) {}

  void forward() { row_.add(Op::forward, stage(turn(forwards_++))); }
  void backward() {
    const int last = shape_.stages_per_rank - 1;
    row_.add(Op::backward, stage(last - turn(backwards_++)));
  }
  Row take() { return row_.take(); }

 private:
  int turn(int done) const {
    return done / shape_.ranks % shape_.stages_per_rank;
  }
  StageId stage(int turn) const { return {turn * shape_.ranks + rank_.value}; }

  Rank rank_;
  const ScheduleShape& shape_;
  RowWriter row_;
  int forwards_ = 0;
  int backwards_ = 0;
};

// How many forwards a rank does before it alternates. One that has a single
// stage waits only for the stages behind it; with several the first backward
// comes after a whole group has gone through all but the last, and gradients
// meet forwards half as fast.
int forwards_ahead(Rank rank, const ScheduleShape& shape) {
  const int behind = shape.ranks - 1 - rank.value;
  return shape.stages_per_rank == 1
             ? behind
             : 2 * behind + (shape.stages_per_rank - 1) * shape.ranks;
}

}  // namespace

Schedule interleaved(const ScheduleShape& shape) {
  Schedule schedule{shape.stages(), shape.microbatches, {}, {}};
  const int groups = (shape.microbatches + shape.ranks - 1) / shape.ranks;
  for (Rank rank; rank.value < shape.ranks; ++rank.value) {
    Rounds row(rank, shape);
    for (int i = 0; i < forwards_ahead(rank, shape); ++i) {  // fill:   F
      row.forward();
    }
    for (int i = 0; i < groups * shape.stages(); ++i) {  // steady: F B, drain
      row.forward();
      row.backward();
    }
    schedule.rows.push_back(row.take());
  }
  return schedule;
}

}  // namespace cleave
