#include "cleave/schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cleave/error.h"
#include "cleave/schedule/order.h"
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

void check_costs(const ScheduleCosts& costs, int stages) {
  std::vector<Seconds> forwards;
  std::vector<Seconds> backwards;
  for (const StageCost& cost : costs.stages) {
    forwards.push_back(cost.forward);
    backwards.push_back(cost.backward);
  }
  check_times(forwards, stages, "forwards");
  check_times(backwards, stages, "backwards");
  check_times(costs.forward_message, stages - 1, "forward messages");
  check_times(costs.backward_message, stages - 1, "backward messages");
}

Seconds duration(const Action& action, const ScheduleCosts& costs) {
  switch (action.op) {
    case Op::forward:
      return costs.stages[action.stage.value].forward;
    case Op::backward:
      return costs.stages[action.stage.value].backward;
    default:
      return {};
  }
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

}  // namespace

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
    const Seconds time = duration(action, costs);
    const Seconds end = start + time;
    ends[rank].push_back(end);
    if (is_compute(action.op)) {
      timeline.rows[rank].push_back({action, start, end});
      timeline.busy[rank] += time;
      timeline.length = std::max(timeline.length, end);
    }
  });
  return timeline;
}

}  // namespace cleave
