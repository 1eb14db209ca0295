#include "cleave/schedule/search/rows_improver.h"

#include <algorithm>
#include <utility>

namespace cleave {
namespace {

void move_within(NumberedRow& row, int from, int to) {
  const auto begin = row.begin();
  if (to < from) {
    std::rotate(begin + to, begin + from, begin + from + 1);
  } else {
    std::rotate(begin + from, begin + from + 1, begin + to + 1);
  }
}

}  // namespace

void RowsImprover::descend(ScoredRows& best) {
  while (!scorer_.is_enough(best.score) && descend_once(best)) {
  }
}

// As with jobs on machines: what makes a circuit long gets shorter only where
// an action leaves its block by the front or by the end.
bool RowsImprover::descend_once(ScoredRows& best) {
  scorer_.timer().period(best.rows);
  for (const auto& [rank, first, last] :
       scorer_.timer().critical_blocks(best.rows)) {
    for (int i = first; i <= last; ++i) {
      if (scorer_.is_enough(best.score)) {
        return false;
      }
      if (try_move(best, rank, i, first) || try_move(best, rank, i, last)) {
        return true;
      }
    }
  }
  return false;
}

// Keeps the move where it makes the period shorter.
bool RowsImprover::try_move(ScoredRows& best, int rank, int from, int to) {
  NumberedRow& row = best.rows[rank];
  to = farthest(row, from, to);
  if (to == from) {
    return false;
  }
  move_within(row, from, to);
  const std::optional<Score> score = scorer_.score(best.rows);
  if (score && is_shorter(*score, best.score)) {
    best.score = *score;
    return true;
  }
  move_within(row, to, from);
  return false;
}

void RowsImprover::shake(ScoredRows& best) {
  while (!scorer_.is_enough(best.score)) {
    ScoredRows trial = best;
    disturb(trial.rows, 2 + random_below(3));
    const std::optional<Score> score = scorer_.score(trial.rows);
    if (!score) {
      continue;
    }
    trial.score = *score;
    descend(trial);
    if (!is_shorter(best.score, trial.score)) {
      best = std::move(trial);
    }
  }
}

// Moves actions of critical blocks to other places of their rows.
void RowsImprover::disturb(NumberedRows& rows, int moves) {
  scorer_.timer().period(rows);
  const auto blocks = scorer_.timer().critical_blocks(rows);
  for (int i = 0; i < moves && !blocks.empty(); ++i) {
    const auto& [rank, first, last] =
        blocks[random_below(static_cast<int>(blocks.size()))];
    NumberedRow& row = rows[rank];
    const int from = first + random_below(last - first + 1);
    const int to =
        farthest(row, from, random_below(static_cast<int>(row.size())));
    move_within(row, from, to);
    if (!scorer_.fits(row, rank)) {
      move_within(row, to, from);
    }
  }
}

// Weight gradients go forward to where their backward is, forwards go back to
// where theirs is.
void RowsImprover::save_memory(ScoredRows& best) {
  const int per_op = scorer_.stages() * scorer_.problem().microbatches;
  for (int rank = 0; rank < scorer_.ranks(); ++rank) {
    const NumberedRow& row = best.rows[rank];
    const int size = static_cast<int>(row.size());
    for (int i = 0; i < size; ++i) {
      if (row[i] >= 2 * per_op) {
        try_saving(best, rank, i, 0);
      }
    }
    for (int i = size - 1; i >= 0; --i) {
      if (row[i] < per_op) {
        try_saving(best, rank, i, size - 1);
      }
    }
  }
}

// Keeps the move where the period stays; goes less far where it does not.
bool RowsImprover::try_saving(ScoredRows& best, int rank, int from, int to) {
  NumberedRow& row = best.rows[rank];
  to = farthest(row, from, to);
  for (; to != from && scorer_.has_effort(); to = from + (to - from) / 2) {
    move_within(row, from, to);
    const std::optional<Score> score = scorer_.score(best.rows);
    if (score && !is_less(best.score.period, score->period)) {
      best.score = *score;
      return true;
    }
    move_within(row, to, from);
  }
  return false;
}

// Actions of a stage whose order is fixed: those of a kind, and those of a
// microbatch. The scorer finds what else cannot run.
bool RowsImprover::must_stay_in_order(int a, int b) const {
  const int m = scorer_.problem().microbatches;
  const int stages = scorer_.stages();
  const bool same_stage = a / m % stages == b / m % stages;
  return same_stage && (a / m == b / m || a % m == b % m);
}

// How far towards `to` the action can go.
int RowsImprover::farthest(const NumberedRow& row, int from, int to) const {
  const int direction = to < from ? -1 : 1;
  int at = from;
  while (at != to && !must_stay_in_order(row[from], row[at + direction])) {
    at += direction;
  }
  return at;
}

// The same numbers on every machine and in every run.
int RowsImprover::random_below(int count) {
  random_ = random_ * 1664525U + 1013904223U;
  return static_cast<int>((random_ >> 8U) % static_cast<unsigned>(count));
}

}  // namespace cleave
