#pragma once

#include "cleave/schedule/search/rows_scorer.h"

namespace cleave {

// Makes rows better by moving single actions within their rows. Rows stay as
// the scorer wants them: within memory, able to run, in the order of the
// microbatches.
class RowsImprover {
 public:
  // Keeps a reference to the scorer.
  explicit RowsImprover(RowsScorer& scorer) : scorer_(scorer) {}

  // Moves actions as long as that makes the period shorter.
  void descend(ScoredRows& best);

  // Moves some actions anywhere and descends from there, until the effort is
  // spent: what no single move makes shorter, several may.
  void shake(ScoredRows& best);

  // Lets ranks keep less at a time where the period stays the same.
  void save_memory(ScoredRows& best);

 private:
  bool descend_once(ScoredRows& best);
  bool try_move(ScoredRows& best, int rank, int from, int to);
  bool try_saving(ScoredRows& best, int rank, int from, int to);
  void disturb(NumberedRows& rows, int moves);
  bool must_stay_in_order(int a, int b) const;
  int farthest(const NumberedRow& row, int from, int to) const;
  int random_below(int count);

  RowsScorer& scorer_;
  std::uint32_t random_ = 1;
};

}  // namespace cleave
