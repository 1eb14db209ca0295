#include "cleave/schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/validate.h"

namespace cleave {
namespace {

void check_time(Seconds time, int stage, const std::string& what) {
  if (!std::isfinite(time.value) || time.value < 0) {
    fail("the time of stage " + std::to_string(stage) + " for " + what +
             " is " + std::to_string(time.value),
         "Give times of zero or more seconds.");
  }
}

Schedule checked(const Schedule& schedule, const ScheduleCosts& costs) {
  check(schedule);
  check_costs(costs, schedule.stages());
  return Order(schedule).is_complete() ? schedule : complete(schedule);
}

// Runs steps of one schedule, one after the other.
class Simulator {
 public:
  Simulator(const Schedule& schedule, const ScheduleCosts& costs)
      : schedule_(schedule),
        order_(schedule),
        costs_(costs),
        ranks_(schedule.rows.size()) {}

  // Returns when its last compute ended.
  Seconds step(Timeline* timeline = nullptr) {
    Seconds last;
    for (RankState& rank : ranks_) {
      rank.free = std::max(rank.free, rank.collectives);
      rank.ends.clear();
    }
    order_.run([&](Place place) {
      const Action& action = schedule_.rows[place.rank.value][place.position];
      const Span span = run(action, place.rank);
      if (is_compute(action.op)) {
        last = std::max(last, span.end);
      }
      if (timeline != nullptr && !traits(action.op).other_end) {
        add(span, place.rank, *timeline);
      }
    });
    return last;
  }

 private:
  struct RankState {
    Seconds free;               // when it goes on in its row
    Seconds collectives;        // when those begun have ended
    std::vector<Seconds> ends;  // of the actions of this step
  };

  Span run(const Action& action, Rank rank) {
    const OpTraits& kind = traits(action.op);
    const bool is_collective =
        kind.lane == Lane::network && kind.end == MessageEnd::none;
    RankState& state = ranks_[rank.value];
    Seconds start = state.free;
    if (is_collective) {
      start = std::max(start, state.collectives);
    }
    for (const Action& need : order_.needs(action)) {
      if (const auto from = order_.place(need)) {
        start = std::max(start, ranks_[from->rank.value].ends[from->position]);
      }
    }
    const bool split = order_.is_split(action.stage, action.index);
    const Seconds end = start + kind.cost(costs_, action, split);
    if (is_collective) {
      state.collectives = end;
    }
    if (kind.going == Going::when_ended) {
      state.free = end;
    }
    state.ends.push_back(end);
    return {action, start, end};
  }

  static void add(const Span& span, Rank rank, Timeline& timeline) {
    if (is_compute(span.action.op)) {
      timeline.busy[rank.value] += span.end - span.start;
      timeline.length = std::max(timeline.length, span.end);
    }
    if (span.end > span.start || is_pass(span.action.op)) {
      timeline.rows[rank.value].push_back(span);
    }
  }

  const Schedule& schedule_;
  const Order order_;
  const ScheduleCosts& costs_;
  std::vector<RankState> ranks_;
};

}  // namespace

void check_costs(const ScheduleCosts& costs, int stages) {
  if (std::ssize(costs.stages) != stages) {
    fail("the schedule needs the times of " + std::to_string(stages) +
             " stages, and has " + std::to_string(costs.stages.size()),
         "Give one per stage.");
  }
  for (int stage = 0; stage < stages; ++stage) {
    const StageCost& cost = costs.stages[stage];
    check_time(cost.forward, stage, "forward");
    check_time(cost.backward, stage, "backward");
    check_time(cost.weight, stage, "weight gradients");
    check_time(cost.update, stage, "the update");
    check_time(cost.values, stage, "a message of values");
    check_time(cost.gradients, stage, "a message of gradients");
    check_time(cost.reduce, stage, "a sum of gradients");
  }
}

double Timeline::bubble() const {
  const Seconds available = static_cast<double>(busy.size()) * length;
  Seconds used;
  for (const Seconds time : busy) {
    used += time;
  }
  return available.value > 0 ? (available - used) / available : 0;
}

Timeline simulate(const Schedule& schedule, const ScheduleCosts& costs) {
  const Schedule whole = checked(schedule, costs);
  const std::size_t ranks = whole.rows.size();
  Timeline timeline{std::vector<std::vector<Span>>(ranks),
                    Seconds{},
                    std::vector<Seconds>(ranks)};
  Simulator(whole, costs).step(&timeline);
  for (std::vector<Span>& row : timeline.rows) {
    std::ranges::stable_sort(row, {}, &Span::start);
  }
  return timeline;
}

// After some steps the times repeat with a period of at most as many steps as
// there are ranks; the mean is taken over a number that most of these divide.
Seconds period(const Schedule& schedule, const ScheduleCosts& costs) {
  constexpr int kSteps = 24;
  const Schedule whole = checked(schedule, costs);
  Simulator simulator(whole, costs);
  Seconds before;
  for (int i = 0; i < kSteps; ++i) {
    before = simulator.step();
  }
  Seconds after;
  for (int i = 0; i < kSteps; ++i) {
    after = simulator.step();
  }
  return (after - before) / kSteps;
}

}  // namespace cleave
