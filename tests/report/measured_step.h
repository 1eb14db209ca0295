#pragma once

#include <algorithm>
#include <map>
#include <random>

#include "cleave/schedule/passes.h"
#include "cleave/schedule/simulate.h"

namespace cleave {

// Every action of a schedule with a span, as a run would measure them: each
// rank in its own order, computations of about `cost`, sends of 20 us, and
// receives that last until their message was handed over 30 us ago.
class MeasuredStep {
 public:
  MeasuredStep(const Schedule& compute, StageCost cost, double jitter)
      : schedule_(with_messages(compute)), cost_(cost), jitter_(jitter) {}

  Timeline run() {
    const std::size_t ranks = schedule_.rows.size();
    Timeline timeline{.rows = std::vector<std::vector<Span>>(ranks),
                      .busy = std::vector<Seconds>(ranks)};
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        moved = advance(schedule_.rows[rank], timeline.rows[rank]) || moved;
      }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (const Span& span : timeline.rows[rank]) {
        timeline.length = std::max(timeline.length, span.end);
        timeline.busy[rank] +=
            is_compute(span.action.op) ? span.end - span.start : Seconds{};
      }
    }
    return timeline;
  }

 private:
  // Does the row's next action; false where it has to wait or there is none.
  bool advance(const Row& row, std::vector<Span>& done) {
    if (done.size() == row.size()) {
      return false;
    }
    const Action& action = row[done.size()];
    const Seconds start = done.empty() ? Seconds{} : done.back().end;
    Seconds end = start + duration(action.op);
    if (const Action sent = sender(action); sent != action) {
      if (!handed_over_.contains(sent)) {
        return false;
      }
      end = std::max(start, handed_over_[sent] + Seconds{30e-6});
    }
    done.push_back({action, start, end});
    handed_over_[action] = end;
    return true;
  }

  // Who sends what a receive waits for; of anything else, itself.
  static Action sender(Action action) {
    if (action.op == Op::receive_forward) {
      return {
          Op::send_forward, action.microbatch, StageId{action.stage.value - 1}};
    }
    if (action.op == Op::receive_backward) {
      return {Op::send_backward,
              action.microbatch,
              StageId{action.stage.value + 1}};
    }
    return action;
  }

  Seconds duration(Op op) {
    const Seconds even = !is_compute(op)     ? Seconds{20e-6}
                         : op == Op::forward ? cost_.forward
                                             : cost_.backward;
    std::uniform_real_distribution<double> factor(1, 1 + jitter_);
    return factor(random_) * even;
  }

  Schedule schedule_;
  StageCost cost_;
  double jitter_;
  std::mt19937 random_{7};
  std::map<Action, Seconds> handed_over_;
};

inline Timeline measured_step(const Schedule& compute,
                              StageCost cost,
                              double jitter = 0.2) {
  return MeasuredStep(compute, cost, jitter).run();
}

}  // namespace cleave
