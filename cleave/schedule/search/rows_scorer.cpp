#include "cleave/schedule/search/rows_scorer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cleave {

bool is_less(double a, double b) {
  return a < b - 1e-9 * std::abs(b);
}

bool is_shorter(const Score& a, const Score& b) {
  return is_less(a.period, b.period) ||
         (!is_less(b.period, a.period) && is_less(a.steps, b.steps));
}

bool is_better(const Score& a, const Score& b) {
  return is_less(a.period, b.period) ||
         (!is_less(b.period, a.period) && a.peak < b.peak);
}

RowsScorer::RowsScorer(const SearchProblem& problem, std::vector<char> splits)
    : problem_(problem),
      stages_(static_cast<int>(problem.placement.size())),
      timer_(problem.placement, problem.microbatches, problem.costs),
      least_(
          least_period(problem.costs, problem.placement, problem.microbatches)
              .value),
      splits_(std::move(splits)) {
  for (int stage = 0; stage < stages_; ++stage) {
    ranks_ = std::max(ranks_, problem.placement[stage].value + 1);
  }
  // About what it takes: a pass per rank over all actions, and some more.
  const std::int64_t actions = 3LL * stages_ * problem.microbatches;
  effort_per_trial_ = 10'000 + actions * (8 + ranks_);
  // In the order of the numbers: by op, stage and microbatch.
  for (const Op op : {Op::forward, Op::backward, Op::weight}) {
    for (int stage = 0; stage < stages_; ++stage) {
      const StageBytes& bytes = problem.memory[stage];
      const MemoryUse use = traits(op).memory(bytes, splits_[stage] != 0);
      change_.insert(change_.end(), problem.microbatches, use.change.value);
      needed_.insert(needed_.end(), problem.microbatches, use.needed.value);
    }
  }
}

std::int64_t RowsScorer::peak(const NumberedRow& row) const {
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const int number : row) {
    most = std::max(most, now + needed_[number]);
    now += change_[number];
    most = std::max(most, now);
  }
  return most;
}

bool RowsScorer::fits(const NumberedRow& row, int rank) const {
  const std::int64_t limit = problem_.limits[rank].value;
  return limit == 0 || peak(row) <= limit;
}

void RowsScorer::allow(std::int64_t effort, std::int64_t trials) {
  effort_ = std::max(effort, trials * effort_per_trial_);
}

std::optional<Score> RowsScorer::score(const NumberedRows& rows) {
  effort_ -= effort_per_trial_;
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::int64_t limit = problem_.limits[rank].value;
    const std::int64_t kept = peak(rows[rank]);
    if (limit > 0 && kept > limit) {
      return std::nullopt;
    }
    most = std::max(most, kept);
  }
  const std::optional<Seconds> period = timer_.period(rows);
  if (!period) {
    return std::nullopt;
  }
  return Score{period->value, timer_.sum_of_steps().value, most};
}

bool RowsScorer::is_enough(const Score& score) const {
  return !has_effort() || !is_less(least_, score.period);
}

}  // namespace cleave
