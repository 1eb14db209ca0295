#include "cleave/schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cleave/error.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/search/period_timer.h"
#include "cleave/schedule/validate.h"

namespace cleave {
namespace {

void check_times(const std::vector<Seconds>& times,
                 int wanted,
                 const std::string& what) {
  if (std::ssize(times) != wanted) {
    fail("the schedule needs " + std::to_string(wanted) + " times for the " +
             what + ", and has " + std::to_string(times.size()),
         "Give one per stage, and one per cut between stages for messages.");
  }
  for (const Seconds time : times) {
    if (!std::isfinite(time.value) || time.value < 0) {
      fail("a time for the " + what + " is " + std::to_string(time.value),
           "Give times of zero or more seconds.");
    }
  }
}

Seconds duration(const Action& action,
                 const ScheduleCosts& costs,
                 const Order& order) {
  return is_compute(action.op)
             ? time_of(action.op,
                       costs.stages[action.stage.value],
                       order.is_split(action.stage, action.microbatch))
             : Seconds{};
}

// How long what `from` made takes to reach `to`, which needs it.
Seconds travel(const Action& from,
               const Action& to,
               const ScheduleCosts& costs,
               const Order& order) {
  if (order.owner(from.stage) == order.owner(to.stage)) {
    return {};
  }
  return from.stage < to.stage ? costs.forward_message[from.stage.value]
                               : costs.backward_message[to.stage.value];
}

// Adds what each rank does behind its row.
void add_updates(const ScheduleCosts& costs,
                 const Order& order,
                 Timeline& timeline) {
  for (StageId stage; stage.value < std::ssize(costs.updates); ++stage.value) {
    const Seconds time = costs.updates[stage.value];
    const int rank = order.owner(stage).value().value;
    std::vector<Span>& row = timeline.rows[rank];
    if (time.value > 0) {
      const Seconds start = row.empty() ? Seconds{} : row.back().end;
      row.push_back({{Op::update, {}, stage}, start, start + time});
      timeline.busy[rank] += time;
      timeline.length = std::max(timeline.length, start + time);
    }
  }
}

}  // namespace

Seconds time_of(Op op, const StageCost& cost, bool split) {
  return op == Op::forward  ? cost.forward
         : op == Op::weight ? cost.weight
         : split            ? cost.backward
                            : cost.backward + cost.weight;
}

void check_costs(const ScheduleCosts& costs, int stages) {
  std::vector<Seconds> forwards;
  std::vector<Seconds> backwards;
  std::vector<Seconds> weights;
  for (const StageCost& cost : costs.stages) {
    forwards.push_back(cost.forward);
    backwards.push_back(cost.backward);
    weights.push_back(cost.weight);
  }
  check_times(forwards, stages, "forwards");
  check_times(backwards, stages, "backwards");
  check_times(weights, stages, "weights");
  check_times(costs.forward_message, stages - 1, "forward messages");
  check_times(costs.backward_message, stages - 1, "backward messages");
  if (!costs.updates.empty()) {
    check_times(costs.updates, stages, "updates");
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
  check(schedule);
  check_costs(costs, schedule.stages);
  const Order order(schedule);
  const std::size_t ranks = schedule.rows.size();
  Timeline timeline{std::vector<std::vector<Span>>(ranks),
                    Seconds{},
                    std::vector<Seconds>(ranks)};
  std::vector<std::vector<Seconds>> ends(ranks);  // of every action
  order.run([&](Place place) {
    const int rank = place.rank.value;
    const Action& action = schedule.rows[rank][place.position];
    Seconds start = ends[rank].empty() ? Seconds{} : ends[rank].back();
    for (const Action& need : order.needs(action)) {
      const Place from = order.place(need).value();
      start = std::max(start,
                       ends[from.rank.value][from.position] +
                           travel(need, action, costs, order));
    }
    const Seconds time = duration(action, costs, order);
    const Seconds end = start + time;
    ends[rank].push_back(end);
    if (is_compute(action.op)) {
      timeline.rows[rank].push_back({action, start, end});
      timeline.busy[rank] += time;
      timeline.length = std::max(timeline.length, end);
    }
  });
  add_updates(costs, order, timeline);
  return timeline;
}

Seconds period(const Schedule& schedule, const ScheduleCosts& costs) {
  check(schedule);
  check_costs(costs, schedule.stages);
  const Order order(schedule);
  std::vector<Rank> placement;
  for (StageId stage; stage.value < schedule.stages; ++stage.value) {
    placement.push_back(order.owner(stage).value());
  }
  PeriodTimer timer(placement, schedule.microbatches, costs);
  return timer.period(timer.numbered(schedule.rows)).value();
}

}  // namespace cleave
