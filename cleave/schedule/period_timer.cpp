#include "cleave/schedule/period_timer.h"

#include <algorithm>
#include <limits>

namespace cleave {
namespace {

// Ops as numbers; compute comes first in Op.
constexpr int kForward = static_cast<int>(Op::forward);
constexpr int kBackward = static_cast<int>(Op::backward);
constexpr int kWeight = static_cast<int>(Op::weight);
constexpr int kComputeOps = 3;
static_assert(kForward == 0 && kBackward == 1 && kWeight == 2);

constexpr double kNoWay = -std::numeric_limits<double>::infinity();

int count_ranks(const std::vector<Rank>& placement) {
  int ranks = 0;
  for (const Rank rank : placement) {
    ranks = std::max(ranks, rank.value + 1);
  }
  return ranks;
}

}  // namespace

PeriodTimer::PeriodTimer(const std::vector<Rank>& placement,
                         int microbatches,
                         const ScheduleCosts& costs)
    : ranks_(count_ranks(placement)),
      stages_(static_cast<int>(placement.size())),
      microbatches_(microbatches),
      costs_(costs),
      updates_(ranks_, 0) {
  costs_.updates.resize(stages_);
  for (int stage = 0; stage < stages_; ++stage) {
    rank_of_.push_back(placement[stage].value);
    updates_[rank_of_[stage]] += costs_.updates[stage].value;
  }
  const std::size_t numbers =
      static_cast<std::size_t>(kComputeOps) * stages_ * microbatches_;
  done_.resize(numbers);
  waiting_.resize(numbers);
  way_to_action_.resize(numbers * ranks_);
}

int PeriodTimer::number(const Action& action) const {
  return (static_cast<int>(action.op) * stages_ + action.stage.value) *
             microbatches_ +
         action.microbatch.value;
}

Action PeriodTimer::action(int number) const {
  const int op_and_stage = number / microbatches_;
  return {static_cast<Op>(op_and_stage / stages_),
          Microbatch{number % microbatches_},
          StageId{op_and_stage % stages_}};
}

NumberedRows PeriodTimer::numbered(const std::vector<Row>& rows) const {
  NumberedRows numbers;
  for (const Row& row : rows) {
    NumberedRow& out = numbers.emplace_back();
    for (const Action& each : row) {
      if (is_compute(each.op)) {
        out.push_back(number(each));
      }
    }
  }
  return numbers;
}

Seconds PeriodTimer::work(Rank rank) const {
  Seconds sum{updates_[rank.value]};
  for (int stage = 0; stage < stages_; ++stage) {
    if (rank_of_[stage] == rank.value) {
      const auto& [forward, backward, weight] = costs_.stages[stage];
      sum += microbatches_ * (forward + backward + weight);
    }
  }
  return sum;
}

std::optional<Seconds> PeriodTimer::period(const NumberedRows& rows) {
  if (!arrange(rows)) {
    return std::nullopt;
  }
  follow_ways();
  return Seconds{greatest_mean()};
}

// What must have run before; everything else follows from that and from the
// order within rows. -1: nothing.
int PeriodTimer::need_of(int number) const {
  const int per_op = stages_ * microbatches_;
  const int op = number / per_op;
  const int stage = number % per_op / microbatches_;
  if (op == kForward) {
    return stage == 0 ? -1 : number - microbatches_;
  }
  if (op == kBackward) {
    return stage + 1 == stages_ ? number - per_op : number + microbatches_;
  }
  return number - per_op;
}

PeriodTimer::Timed PeriodTimer::timed(int number) const {
  const int per_op = stages_ * microbatches_;
  const int op = number / per_op;
  const int stage = number % per_op / microbatches_;
  const StageCost& cost = costs_.stages[stage];
  Timed result{rank_of_[stage], number, -1, 0, 0};
  if (op == kForward) {
    result.duration = cost.forward.value;
    if (stage > 0 && rank_of_[stage - 1] != result.rank) {
      result.need = number - microbatches_;
      result.travel = costs_.forward_message[stage - 1].value;
    }
  } else if (op == kBackward) {
    const bool split = has_weight_[number % per_op] != 0;
    result.duration = cost.backward.value + (split ? 0 : cost.weight.value);
    if (stage + 1 < stages_ && rank_of_[stage + 1] != result.rank) {
      result.need = number + microbatches_;
      result.travel = costs_.backward_message[stage].value;
    }
  } else {
    result.duration = cost.weight.value;
  }
  return result;
}

// Brings the actions into an order in which each stands behind its need. False:
// there is none.
bool PeriodTimer::arrange(const NumberedRows& rows) {
  const int per_op = stages_ * microbatches_;
  std::ranges::fill(done_, 0);
  std::ranges::fill(waiting_, -1);
  has_weight_.assign(per_op, 0);
  position_.assign(rows.size(), 0);
  runnable_.clear();
  order_.clear();
  std::size_t total = 0;
  for (int rank = static_cast<int>(rows.size()) - 1; rank >= 0; --rank) {
    runnable_.push_back(rank);
    total += rows[rank].size();
    for (const int number : rows[rank]) {
      if (number >= kWeight * per_op) {
        has_weight_[number % per_op] = 1;
      }
    }
  }
  while (!runnable_.empty()) {
    const int rank = runnable_.back();
    runnable_.pop_back();
    const NumberedRow& row = rows[rank];
    int& at = position_[rank];
    for (; at < std::ssize(row); ++at) {
      const int need = need_of(row[at]);
      if (need >= 0 && done_[need] == 0) {
        waiting_[need] = rank;
        break;
      }
      done_[row[at]] = 1;
      order_.push_back(timed(row[at]));
      if (waiting_[row[at]] >= 0) {
        runnable_.push_back(waiting_[row[at]]);
      }
    }
  }
  return order_.size() == total;
}

// A step turns the times at which ranks start into those at which they end:
// each end is the greatest of the starts, each plus the longest way from there.
void PeriodTimer::follow_ways() {
  way_to_rank_.assign(static_cast<std::size_t>(ranks_) * ranks_, kNoWay);
  for (int rank = 0; rank < ranks_; ++rank) {
    way_to_rank_[rank * ranks_ + rank] = 0;
  }
  for (const Timed& action : order_) {
    double* const rank_way = &way_to_rank_[action.rank * ranks_];
    double* const own_way =
        &way_to_action_[static_cast<std::size_t>(action.number) * ranks_];
    const double* const need_way =
        action.need < 0
            ? rank_way
            : &way_to_action_[static_cast<std::size_t>(action.need) * ranks_];
    for (int from = 0; from < ranks_; ++from) {
      const double start =
          std::max(rank_way[from], need_way[from] + action.travel);
      own_way[from] = rank_way[from] = start + action.duration;
    }
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int from = 0; from < ranks_; ++from) {
      way_to_rank_[rank * ranks_ + from] += updates_[rank];
    }
  }
}

// In the long run a step takes the mean of the slowest circuit through the
// ranks, one step per rank it visits. Found with Karp's theorem: of the ways of
// `ranks_` steps that end at a rank, compare the longest with shorter ones.
double PeriodTimer::greatest_mean() const {
  std::vector<std::vector<double>> longest{std::vector<double>(ranks_, 0)};
  for (int steps = 1; steps <= ranks_; ++steps) {
    std::vector<double> next(ranks_, kNoWay);
    for (int to = 0; to < ranks_; ++to) {
      for (int from = 0; from < ranks_; ++from) {
        next[to] = std::max(
            next[to], longest.back()[from] + way_to_rank_[to * ranks_ + from]);
      }
    }
    longest.push_back(std::move(next));
  }
  double greatest = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    double least = std::numeric_limits<double>::infinity();
    for (int steps = 0; steps < ranks_; ++steps) {
      least = std::min(
          least,
          (longest[ranks_][rank] - longest[steps][rank]) / (ranks_ - steps));
    }
    greatest = std::max(greatest, least);
  }
  return greatest;
}

}  // namespace cleave
