#include "cleave/plan/pipeline_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "cleave/counted.h"
#include "cleave/error.h"
#include "cleave/plan/basis.h"
#include "cleave/plan/draft.h"
#include "cleave/plan/no_fit.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/plan/scatter.h"
#include "cleave/schedule/registry.h"

namespace cleave {
namespace {

// Devices lend where that is not slower on paper: it still helps those who turn
// out slower than measured.
constexpr double kAsFast = 1.005;

// What lending itself takes for an action, at most, is not predicted: in steps
// of half a millisecond it is more than lending gains.
constexpr Seconds kLendingTakes{15e-6};

// Plans whose steps differ by less may be the other way round where times vary
// and devices lend.
constexpr double kRivals = 1.05;

// Scattered layers find less of what they need in caches than is predicted:
// they must gain more than that.
constexpr double kWorthScattering = 1.02;

// How a schedule can be drafted.
struct DraftKind {
  std::string schedule;
  int stages_per_rank;
};

// "auto" is cut for schedules that stand for what a search can find, with the
// fewest and with more microbatches in memory, one and two stages per device.
std::vector<DraftKind> draft_kinds(const PlanRequest& request) {
  const int asked = request.stages_per_device;
  std::vector<DraftKind> kinds;
  if (request.schedule == kAutoSchedule) {
    if (asked <= 1) {
      kinds = {{"1f1b", 1}, {"zb-h1", 1}, {"zb-h2", 1}};
    }
    if (asked == 0 || asked == 2) {
      kinds.push_back({"zb-v", 2});
    }
    if (asked != 1) {
      kinds.push_back({"interleaved", std::max(asked, 2)});
    }
    return kinds;
  }
  const int fixed = stages_per_rank_of(request.schedule);
  return {{request.schedule,
           asked > 0             ? asked
           : fixed == kAnyNumber ? 2
                                 : fixed}};
}

// The devices of a pipeline of so many ranks. Of those that share a core, as
// slow as when all on it compute, also those of other replicas.
std::vector<DeviceSpec> devices_for(int ranks,
                                    const std::vector<DeviceSpec>& devices,
                                    const PlanRequest& request) {
  std::vector<DeviceSpec> used(devices.begin(), devices.begin() + ranks);
  const auto all = devices.begin() + std::ptrdiff_t{ranks} * request.replicas;
  for (DeviceSpec& device : used) {
    const auto sharing = std::ranges::count(
        devices.begin(), all, device.core, &DeviceSpec::core);
    if (device.core >= 0 && sharing > 1) {
      device.speed /= static_cast<double>(sharing);
    } else {
      device.core = -1;
    }
  }
  return used;
}

std::vector<Draft> drafts_for(const Profile& profile,
                              const std::vector<DeviceSpec>& devices,
                              const PlanRequest& request) {
  const auto layers = static_cast<int>(profile.layers.size());
  std::vector<Draft> drafts;
  for (int ranks = 1; ranks <= std::ssize(devices) / request.replicas;
       ++ranks) {
    for (const auto& [schedule, per_rank] : draft_kinds(request)) {
      const int stages = ranks * per_rank;
      if (stages > layers || (request.stages > 0 && stages != request.stages)) {
        continue;
      }
      drafts.emplace_back(profile,
                          devices_for(ranks, devices, request),
                          request,
                          schedule,
                          ranks,
                          per_rank);
    }
  }
  return drafts;
}

// What the slowest of the `most` fastest takes. REQUIRES: there are some.
Seconds slowest_of_the_fastest(std::vector<Seconds> steps, std::size_t most) {
  std::ranges::sort(steps);
  return steps[std::min(most, steps.size()) - 1];
}

// By rising number of devices. Moving cuts takes time, so only the drafts that
// are fastest without get it.
std::vector<Plan> improved_plans(const std::vector<Draft>& drafts) {
  constexpr std::size_t kMost = 6;
  std::vector<std::optional<Plan>> plans;
  std::vector<Seconds> steps;
  for (const Draft& draft : drafts) {
    plans.push_back(draft.best_plan(/*moves_cuts=*/false));
    if (plans.back()) {
      steps.push_back(plans.back()->step);
    }
  }
  std::vector<Plan> found;
  if (steps.empty()) {
    return found;
  }
  const Seconds slowest = slowest_of_the_fastest(std::move(steps), kMost);
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (plans[i] && plans[i]->step <= slowest) {
      plans[i] = drafts[i].best_plan(/*moves_cuts=*/true);
    }
    if (plans[i]) {
      found.push_back(*std::move(plans[i]));
    }
  }
  return found;
}

// For every number of devices the best plan, as far as it is among the fastest
// or uses most devices: searching for a schedule takes time.
std::vector<Plan> most_promising(const std::vector<Plan>& plans) {
  constexpr std::size_t kMost = 3;
  std::map<int, Plan> best;
  for (const Plan& plan : plans) {
    const auto [place, is_new] = best.try_emplace(rank_count(plan), plan);
    if (!is_new && plan.step < place->second.step) {
      place->second = plan;
    }
  }
  std::vector<Seconds> steps;
  steps.reserve(best.size());
  for (const auto& [ranks, plan] : best) {
    steps.push_back(plan.step);
  }
  const Seconds slowest = slowest_of_the_fastest(std::move(steps), kMost);
  const int most = best.rbegin()->first;
  std::erase_if(best, [&](const auto& entry) {
    return entry.second.step > slowest && entry.first != most;
  });
  std::vector<Plan> found;
  found.reserve(best.size());
  for (auto& [ranks, plan] : best) {
    found.push_back(std::move(plan));
  }
  return found;
}

// The most promising plans, with schedules searched for them. Where nobody
// asked for a number of stages, the last is that with most devices and
// scattered layers.
std::vector<Plan> searched(const std::vector<Plan>& plans,
                           const Profile& profile,
                           const std::vector<DeviceSpec>& devices,
                           const PlanRequest& request) {
  std::vector<Plan> found = most_promising(plans);
  for (Plan& plan : found) {
    plan.schedule = kAutoSchedule;
    predict(plan, schedule_of(plan, plan.microbatches));
  }
  if (request.stages == 0 && request.stages_per_device == 0) {
    const Plan& largest = found.back();
    const int ranks = rank_count(largest);
    const std::vector<DeviceSpec> used = devices_for(ranks, devices, request);
    const PlanBasis basis(profile, request, ranks);
    if (auto other = scattered(basis, used, largest)) {
      found.push_back(*std::move(other));
    }
  }
  return found;
}

std::size_t longest_row(const Schedule& schedule) {
  std::size_t most = 0;
  for (const Row& row : schedule.rows) {
    most = std::max(most, row.size());
  }
  return most;
}

// With times that vary, and with devices that lend where that pays: not where
// they share cores, for what one leaves of its core another has anyway.
Plan as_it_will_run(Plan plan,
                    const Profile& profile,
                    const PlanRequest& request) {
  if (rank_count(plan) == 1) {
    return plan;
  }
  const Schedule schedule = schedule_of(plan, plan.microbatches);
  predict_unsteady(plan, schedule, profile, request.caller);
  if (request.lend && request.replicas == 1 && !share_cores(plan)) {
    Plan lent = plan;
    lent.lend = true;
    lent.moving = profile.moving;
    predict_unsteady(lent, schedule, profile, request.caller);
    const Seconds taken =
        static_cast<double>(longest_row(schedule)) * kLendingTakes;
    plan = lent.step + taken <= kAsFast * plan.step ? lent : plan;
  }
  return plan;
}

// The fastest as it will run, on as few devices as are worth it. REQUIRES:
// there are some, by rising number of devices; of two with the same number the
// later one's layers are scattered.
Plan fastest_of(const std::vector<Plan>& plans,
                const Profile& profile,
                const PlanRequest& request) {
  const Seconds least = std::ranges::min(plans, {}, &Plan::step).step;
  const auto first = std::ranges::find_if(plans, [&](const Plan& plan) {
    return plan.step <= kWorthADevice * least;
  });
  std::optional<Plan> best;
  for (const Plan& plan : plans) {
    if (rank_count(plan) != rank_count(*first) || plan.step > kRivals * least) {
      continue;
    }
    Plan other = as_it_will_run(plan, profile, request);
    if (!best || kWorthScattering * other.step < best->step) {
      best = std::move(other);
    }
  }
  return *std::move(best);
}

}  // namespace

Plan pipeline_plan(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanRequest& request) {
  const std::vector<Draft> drafts = drafts_for(profile, devices, request);
  if (drafts.empty()) {
    fail("no number of devices gives " + counted(request.stages, "stage") +
             " with the schedule '" + request.schedule + "'",
         "Ask for a multiple of its stages per device, or leave one of them "
         "to the planner.");
  }
  std::vector<Plan> plans = improved_plans(drafts);
  if (plans.empty()) {
    fail_no_fit(profile.model, drafts);
  }
  if (request.schedule == kAutoSchedule) {
    plans = searched(plans, profile, devices, request);
  }
  return fastest_of(plans, profile, request);
}

}  // namespace cleave
