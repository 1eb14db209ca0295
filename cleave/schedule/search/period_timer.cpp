#include "cleave/schedule/search/period_timer.h"

#include <algorithm>
#include <limits>

#include "cleave/schedule/op.h"

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
      last_gradient_(stages_, -1) {
  for (int stage = 0; stage < stages_; ++stage) {
    rank_of_.push_back(placement[stage].value);
  }
  const std::size_t numbers =
      static_cast<std::size_t>(kComputeOps) * stages_ * microbatches_;
  done_.resize(numbers);
  waiting_.resize(numbers);
  place_.resize(numbers);
  way_to_action_.resize(numbers * ranks_);
  update_behind_.resize(numbers);
  for (std::size_t number = 0; number < numbers; ++number) {
    need_.push_back(need_of(static_cast<int>(number)));
    timed_.push_back(timed(static_cast<int>(number)));
  }
}

int PeriodTimer::number(const Action& action) const {
  return (static_cast<int>(action.op) * stages_ + action.stage.value) *
             microbatches_ +
         action.index;
}

Action PeriodTimer::action(int number) const {
  const int op_and_stage = number / microbatches_;
  return {static_cast<Op>(op_and_stage / stages_),
          StageId{op_and_stage % stages_},
          number % microbatches_,
          {}};
}

NumberedRows PeriodTimer::numbered(const std::vector<Row>& rows) const {
  NumberedRows numbers;
  for (const Row& row : rows) {
    NumberedRow& out = numbers.emplace_back();
    for (const Action& each : row) {
      if (is_pass(each.op)) {
        out.push_back(number(each));
      }
    }
  }
  return numbers;
}

Seconds PeriodTimer::work(Rank rank) const {
  Seconds sum;
  for (int stage = 0; stage < stages_; ++stage) {
    if (rank_of_[stage] == rank.value) {
      const StageCost& cost = costs_.stages[stage];
      sum += microbatches_ * (cost.forward + cost.backward + cost.weight) +
             cost.update;
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
      result.travel = costs_.stages[stage - 1].values.value;
    }
  } else if (op == kBackward) {
    result.duration = cost.backward.value;
    if (stage + 1 < stages_ && rank_of_[stage + 1] != result.rank) {
      result.need = number + microbatches_;
      result.travel = costs_.stages[stage + 1].gradients.value;
    }
  } else {
    result.duration = cost.weight.value;
  }
  return result;
}

void PeriodTimer::start_over(const NumberedRows& rows) {
  const int per_op = stages_ * microbatches_;
  std::ranges::fill(done_, 0);
  std::ranges::fill(waiting_, -1);
  std::ranges::fill(update_behind_, 0);
  std::ranges::fill(last_gradient_, -1);
  has_weight_.assign(per_op, 0);
  position_.assign(rows.size(), 0);
  runnable_.clear();
  order_.clear();
  for (int rank = static_cast<int>(rows.size()) - 1; rank >= 0; --rank) {
    runnable_.push_back(rank);
    for (const int number : rows[rank]) {
      if (number >= kWeight * per_op) {
        has_weight_[number - kWeight * per_op] = 1;
      }
      if (number >= kBackward * per_op) {
        last_gradient_[number % per_op / microbatches_] = number;
      }
    }
  }
  for (int stage = 0; stage < stages_; ++stage) {
    if (last_gradient_[stage] >= 0) {
      update_behind_[last_gradient_[stage]] = costs_.stages[stage].update.value;
    }
  }
}

// Brings the actions into an order in which each stands behind its need. False:
// there is none.
bool PeriodTimer::arrange(const NumberedRows& rows) {
  start_over(rows);
  const int per_op = stages_ * microbatches_;
  while (!runnable_.empty()) {
    const int rank = runnable_.back();
    runnable_.pop_back();
    const NumberedRow& row = rows[rank];
    int& at = position_[rank];
    for (; at < std::ssize(row); ++at) {
      const int number = row[at];
      const int need = need_[number];
      if (need >= 0 && done_[need] == 0) {
        waiting_[need] = rank;
        break;
      }
      done_[number] = 1;
      place_[number] = at;
      order_.push_back(timed_[number]);
      const int cell = number - kBackward * per_op;
      if (cell >= 0 && cell < per_op && has_weight_[cell] == 0) {
        order_.back().duration += timed_[number + per_op].duration;
      }
      if (waiting_[number] >= 0) {
        runnable_.push_back(waiting_[number]);
      }
    }
  }
  return std::ranges::equal(
      position_, rows, {}, {}, [](const NumberedRow& row) {
        return static_cast<int>(row.size());
      });
}

// A step turns the times at which ranks start into those at which they end:
// each end is the greatest of the starts, each plus the longest way from there.
void PeriodTimer::follow_ways() {
  way_to_rank_.assign(static_cast<std::size_t>(ranks_) * ranks_, kNoWay);
  for (int rank = 0; rank < ranks_; ++rank) {
    way_to_rank_[rank * ranks_ + rank] = 0;
  }
  for (const Timed& action : order_) {
    double* const rank_way =
        &way_to_rank_[static_cast<std::size_t>(action.rank) * ranks_];
    double* const own_way =
        &way_to_action_[static_cast<std::size_t>(action.number) * ranks_];
    const double* const need_way =
        action.need < 0
            ? rank_way
            : &way_to_action_[static_cast<std::size_t>(action.need) * ranks_];
    for (int from = 0; from < ranks_; ++from) {
      const double start =
          std::max(rank_way[from], need_way[from] + action.travel);
      own_way[from] = start + action.duration;
      rank_way[from] = own_way[from] + update_behind_[action.number];
    }
  }
}

// In the long run a step takes the mean of the slowest circuit through the
// ranks, one step per rank it visits. Found with Karp's theorem: of the ways of
// `ranks_` steps that end at a rank, compare the longest with shorter ones.
double PeriodTimer::greatest_mean() {
  const int n = ranks_;
  longest_.assign(static_cast<std::size_t>(n + 1) * n, kNoWay);
  longest_from_.assign(static_cast<std::size_t>(n + 1) * n, 0);
  std::fill_n(longest_.begin(), n, 0);
  for (int steps = 1; steps <= n; ++steps) {
    for (int to = 0; to < n; ++to) {
      double& longest = longest_[steps * n + to];
      for (int from = 0; from < n; ++from) {
        const double way =
            longest_[(steps - 1) * n + from] + way_to_rank_[to * n + from];
        if (way > longest) {
          longest = way;
          longest_from_[steps * n + to] = from;
        }
      }
    }
  }
  double greatest = kNoWay;
  for (int rank = 0; rank < n; ++rank) {
    double least = std::numeric_limits<double>::infinity();
    for (int steps = 0; steps < n; ++steps) {
      least = std::min(
          least,
          (longest_[n * n + rank] - longest_[steps * n + rank]) / (n - steps));
    }
    if (least > greatest) {
      greatest = least;
      slowest_ = rank;
    }
  }
  return greatest;
}

// The ranks of the slowest circuit in the order in which it visits them; the
// first one comes again at the end. A way of as many steps as there are ranks
// visits one twice, and what lies between is the circuit.
std::vector<int> PeriodTimer::critical_ranks() const {
  std::vector<int> visited{slowest_};
  for (int steps = ranks_; steps > 0; --steps) {
    const int from = longest_from_[steps * ranks_ + visited.back()];
    const auto before = std::ranges::find(visited, from);
    if (before != visited.end()) {
      std::vector<int> circuit(before, visited.end());
      circuit.push_back(from);
      std::ranges::reverse(circuit);
      return circuit;
    }
    visited.push_back(from);
  }
  return {slowest_, slowest_};
}

std::vector<PeriodTimer::Block> PeriodTimer::critical_blocks(
    const NumberedRows& rows) const {
  const std::vector<int> circuit = critical_ranks();
  std::vector<Block> blocks;
  for (std::size_t i = 1; i < circuit.size(); ++i) {
    add_blocks(rows, circuit[i - 1], circuit[i], blocks);
  }
  return blocks;
}

// Goes the longest way from the start of one rank to the end of another
// backwards, from action to action.
void PeriodTimer::add_blocks(const NumberedRows& rows,
                             int from,
                             int to,
                             std::vector<Block>& blocks) const {
  const auto way = [&](int number) {
    return way_to_action_[static_cast<std::size_t>(number) * ranks_ + from];
  };
  int last = static_cast<int>(rows[to].size()) - 1;
  for (int rank = to; last >= 0;) {
    int first = last;
    int need = -1;
    for (;; --first) {
      const Timed& action = timed_[rows[rank][first]];
      const double own_start = rank == from ? 0 : kNoWay;
      const double before = first > 0
                                ? way(rows[rank][first - 1]) +
                                      update_behind_[rows[rank][first - 1]]
                                : own_start;
      if (action.need >= 0 && way(action.need) + action.travel > before) {
        need = action.need;
        break;
      }
      if (first == 0) {
        break;
      }
    }
    blocks.push_back({rank, first, last});
    if (need < 0) {
      return;
    }
    rank = timed_[need].rank;
    last = place_[need];
  }
}

Seconds PeriodTimer::sum_of_steps() const {
  double sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    sum += way_to_rank_[rank * ranks_ + rank];
  }
  return {sum};
}

}  // namespace cleave
