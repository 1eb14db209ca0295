#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cleave/schedule/search/period_timer.h"
#include "cleave/schedule/search/search.h"

// The search (search.h) works on rows as numbers. A scorer says how good they
// are and counts the effort, a list scheduler makes some, an improver changes
// them.
namespace cleave {

// How good rows are; less is better.
struct Score {
  double period = 0;
  double steps = 0;       // see PeriodTimer::sum_of_steps
  std::int64_t peak = 0;  // bytes of the rank that keeps most
};

// Less by more than sums in another order may differ.
bool is_less(double a, double b);

// By period, then by steps: what the search goes by.
bool is_shorter(const Score& a, const Score& b);

// By period, then by peak: what it is asked for.
bool is_better(const Score& a, const Score& b);

// Rows whose stages have W for every microbatch, or for none.
struct ScoredRows {
  NumberedRows rows;
  Score score;
};

class RowsScorer {
 public:
  // Keeps a reference to the problem. `splits`: by stage, whether it has W.
  RowsScorer(const SearchProblem& problem, std::vector<char> splits);

  // Nothing where the rows do not fit into memory or cannot run.
  std::optional<Score> score(const NumberedRows& rows);

  std::int64_t peak(const NumberedRow& row) const;
  bool fits(const NumberedRow& row, int rank) const;

  bool splits(int stage) const { return splits_[stage] != 0; }

  // From here on so much may be scored before it is enough, but at least
  // `trials` times.
  void allow(std::int64_t effort, std::int64_t trials);

  bool has_effort() const { return effort_ > 0; }

  // Whether the effort is spent or nothing can be shorter.
  bool is_enough(const Score& score) const;

  PeriodTimer& timer() { return timer_; }
  int stages() const { return stages_; }
  int ranks() const { return ranks_; }
  const SearchProblem& problem() const { return problem_; }

 private:
  const SearchProblem& problem_;
  int stages_;
  int ranks_ = 0;
  PeriodTimer timer_;
  double least_;              // period
  std::vector<char> splits_;  // by stage
  // By number, in bytes: by how much what is kept changes, and what is needed
  // meanwhile above what was kept.
  std::vector<std::int64_t> change_;
  std::vector<std::int64_t> needed_;
  std::int64_t effort_ = 0;
  std::int64_t effort_per_trial_ = 0;
};

}  // namespace cleave
