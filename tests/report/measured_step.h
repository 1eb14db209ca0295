#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "cleave/schedule/complete.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/simulate.h"

namespace cleave {

// Every action of a schedule with a span, as a run would measure them: each
// rank in its own order, computations of about `cost`, sends of 20 us, and
// receives that last until their message was handed over 30 us ago. Collectives
// follow each other and keep no rank busy.
class MeasuredStep {
 public:
  MeasuredStep(const Schedule& passes, StageCost cost, double jitter)
      : schedule_(complete(passes)),
        order_(schedule_),
        costs_{std::vector<StageCost>(passes.stages(), cost)},
        jitter_(jitter),
        clocks_(schedule_.rows.size()),
        collectives_(schedule_.rows.size()) {}
  MeasuredStep(const MeasuredStep&) = delete;
  MeasuredStep& operator=(const MeasuredStep&) = delete;

  Timeline run() {
    const std::size_t ranks = schedule_.rows.size();
    timeline_ = {.rows = std::vector<std::vector<Span>>(ranks),
                 .length = {},
                 .busy = std::vector<Seconds>(ranks)};
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        moved = advance(rank) || moved;
      }
    }
    return std::move(timeline_);
  }

 private:
  // Does the row's next action; false where it has to wait or there is none.
  bool advance(std::size_t rank) {
    std::vector<Span>& done = timeline_.rows[rank];
    if (done.size() == schedule_.rows[rank].size()) {
      return false;
    }
    const Action& action = schedule_.rows[rank][done.size()];
    const std::optional<Seconds> ready = last_need(action);
    if (!ready) {
      return false;
    }
    const Op op = action.op;
    const bool collective = !is_compute(op) && !traits(op).other_end;
    Seconds start = clocks_[rank];
    if (!is_receive(op)) {
      start = std::max(start, *ready);
    }
    if (collective) {
      start = std::max(start, collectives_[rank]);
    }
    const Seconds end = is_receive(op)
                            ? std::max(start, *ready + Seconds{30e-6})
                            : start + duration(action);
    (collective ? collectives_ : clocks_)[rank] = end;
    done.push_back({action, start, end});
    if (is_compute(op)) {
      timeline_.length = std::max(timeline_.length, end);
      timeline_.busy[rank] += end - start;
    }
    return true;
  }

  // When all had ended that the action needs; none before that.
  std::optional<Seconds> last_need(const Action& action) const {
    Seconds last;
    for (const Action& need : order_.needs(action)) {
      if (const std::optional<Place> place = order_.place(need)) {
        const std::vector<Span>& row = timeline_.rows[place->rank.value];
        if (place->position >= std::ssize(row)) {
          return std::nullopt;
        }
        last = std::max(last, row[place->position].end);
      }
    }
    return last;
  }

  Seconds duration(const Action& action) {
    const OpTraits& kind = traits(action.op);
    const bool split = order_.is_split(action.stage, action.index);
    const Seconds even =
        kind.other_end ? Seconds{20e-6} : kind.cost(costs_, action, split);
    std::uniform_real_distribution<double> factor(1, 1 + jitter_);
    return factor(random_) * even;
  }

  const Schedule schedule_;
  const Order order_;
  ScheduleCosts costs_;
  double jitter_;
  std::mt19937 random_{7};
  Timeline timeline_;
  std::vector<Seconds> clocks_;       // by rank, when it is free
  std::vector<Seconds> collectives_;  // by rank, the last end
};

inline Timeline measured_step(const Schedule& passes,
                              StageCost cost,
                              double jitter = 0.2) {
  return MeasuredStep(passes, cost, jitter).run();
}

// The passes of one of several replicas that sum each stage's gradients in
// `buckets` and keep sections of the optimizer's states: G and A.
inline Schedule mirrored(Schedule passes, int buckets) {
  passes.synchronisation = {
      .buckets = std::vector<int>(passes.stages(), buckets),
      .shard_states = ShardStates::optimizer};
  return passes;
}

}  // namespace cleave
