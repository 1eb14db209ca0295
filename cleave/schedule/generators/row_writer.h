#pragma once

#include <map>
#include <utility>

#include "cleave/schedule/schedule.h"

namespace cleave {

// Writes a rank's row in the order of the microbatches. What lies behind the
// last microbatch is counted and not written, so that a generator can write the
// rhythm of a longer step: leaving whole microbatches out of rows that can run
// leaves rows that can run.
class RowWriter {
 public:
  explicit RowWriter(int microbatches) : microbatches_(microbatches) {}

  // The next microbatch of this op and stage.
  void add(Op op, StageId stage) {
    const int next = counts_[{op, stage}]++;
    if (next < microbatches_) {
      row_.push_back({op, stage, next, {}});
    }
  }

  // All microbatches of this op and stage that are left.
  void add_rest(Op op, StageId stage) {
    for (int left = microbatches_ - counts_[{op, stage}]; left > 0; --left) {
      add(op, stage);
    }
  }

  Row take() { return std::move(row_); }

 private:
  int microbatches_;
  Row row_;
  std::map<std::pair<Op, StageId>, int> counts_;  // added so far
};

}  // namespace cleave
