#include "cleave/plan/plan_schedule.h"

#include <algorithm>
#include <string>

#include "cleave/error.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/simulate_lending.h"
#include "cleave/schedule/validate.h"
#include "cleave/schedule/waiting.h"

namespace cleave {
namespace {

Schedule found_schedule(const Plan& plan, int microbatches) {
  const std::optional<Schedule> found =
      search_schedule(search_problem_of(plan, microbatches));
  if (!found) {
    fail("no schedule of the plan's stages fits the memory of its devices",
         "Plan again, or give the devices more memory.");
  }
  return *found;
}

// What each row may need where devices lend, who need `alone` where they do
// not: a tenth of the device's peak more, as far as its budget goes.
std::vector<Bytes> limits_to_lend(const Plan& plan,
                                  const std::vector<Bytes>& alone,
                                  const std::vector<Bytes>& beside) {
  const std::vector<Rank> placement = placement_of(plan);
  std::vector<Bytes> budgets(alone.size());
  for (std::size_t i = 0; i < placement.size(); ++i) {
    budgets[placement[i].value] = plan.stages[i].memory;
  }
  std::vector<Bytes> limits = alone;
  for (std::size_t rank = 0; rank < limits.size(); ++rank) {
    const Bytes peak = alone[rank] + beside[rank];
    const Bytes room{peak.value / 10};
    const Bytes left = budgets[rank] - peak;
    limits[rank] += budgets[rank].value > 0 ? std::min(room, left) : room;
  }
  return limits;
}

}  // namespace

std::vector<Rank> placement_of(const Plan& plan) {
  std::vector<std::string> devices;
  std::vector<Rank> ranks;
  for (const StagePlan& stage : plan.stages) {
    auto known = std::ranges::find(devices, stage.device);
    if (known == devices.end() || stage.device.empty()) {
      known = devices.insert(devices.end(), stage.device);
    }
    ranks.push_back({static_cast<int>(known - devices.begin())});
  }
  return ranks;
}

int rank_count(const Plan& plan) {
  const std::vector<Rank> ranks = placement_of(plan);
  return ranks.empty() ? 0 : std::ranges::max(ranks).value + 1;
}

ScheduleCosts costs_of(const Plan& plan) {
  constexpr StageCost kEven{Seconds{0.001}, Seconds{0.001}, Seconds{0.001}};
  ScheduleCosts costs;
  for (const StagePlan& stage : plan.stages) {
    costs.stages.push_back(
        plan.step.value > 0
            ? StageCost{stage.forward, stage.backward, stage.weight}
            : kEven);
    costs.updates.push_back(stage.update);
    costs.forward_message.push_back(stage.message);
  }
  costs.forward_message.pop_back();
  costs.backward_message = costs.forward_message;  // a gradient for every value
  return costs;
}

StageBytes memory_of(const StagePlan& stage) {
  return {.kept = stage.activations,
          .kept_for_weights = stage.kept_for_weights,
          .growth = stage.growth,
          .first_growth = stage.first_growth,
          .first_weight_growth = stage.first_weight_growth,
          .working = stage.working,
          .working_on_weights = stage.working_on_weights,
          .gradients = stage.gradients,
          .sums = stage.sums};
}

std::vector<Bytes> memory_beside(const Plan& plan,
                                 const Schedule& schedule,
                                 const Timeline& timeline) {
  std::vector<StageMessages> messages;
  std::vector<Bytes> always(schedule.rows.size());
  std::vector<Bytes> largest(schedule.rows.size());
  const std::vector<Rank> placement = placement_of(plan);
  for (std::size_t i = 0; i < placement.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    const int rank = placement[i].value;
    messages.push_back({stage.leaving, stage.returning});
    always[rank] += stage.fixed - stage.gradients;
    largest[rank] = std::max(largest[rank], stage.leaving + stage.returning);
  }
  const std::vector<Bytes> waiting =
      waiting_bytes(schedule, timeline, messages);
  for (std::size_t rank = 0; rank < always.size(); ++rank) {
    always[rank] += std::max(waiting[rank], largest[rank]);
  }
  return always;
}

SearchProblem search_problem_of(const Plan& plan, int microbatches) {
  SearchProblem problem{.placement = placement_of(plan),
                        .microbatches = microbatches,
                        .costs = costs_of(plan),
                        .memory = {},
                        .limits = std::vector<Bytes>(rank_count(plan))};
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    problem.memory.push_back(memory_of(stage));
    Bytes& limit = problem.limits[problem.placement[i].value];
    if (stage.memory.value > 0) {
      limit = limit.value == 0 ? stage.memory : limit;
      limit = std::max(Bytes{1},
                       limit - stage.fixed - stage.leaving - stage.returning);
    }
  }
  return problem;
}

Schedule schedule_of(const Plan& plan, int microbatches) {
  if (plan.schedule == kAutoSchedule) {
    return found_schedule(plan, microbatches);
  }
  const int ranks = rank_count(plan);
  const int stages = static_cast<int>(plan.stages.size());
  const ScheduleShape shape{.ranks = ranks,
                            .stages_per_rank = stages / ranks,
                            .microbatches = microbatches};
  if (stages % ranks != 0 ||
      placement(plan.schedule, shape) != placement_of(plan)) {
    fail("the plan's " + std::to_string(stages) + " stages are not on its " +
             std::to_string(ranks) + " devices as the schedule '" +
             plan.schedule + "' wants them",
         "Change the devices of the stages, or the schedule to auto, which "
         "takes any.");
  }
  return make_schedule(plan.schedule, shape);
}

std::vector<SharedRow> training_rows(const Plan& plan,
                                     const Schedule& schedule) {
  check(schedule);
  std::vector<StageBytes> stages;
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(memory_of(stage));
  }
  const std::vector<Bytes> alone = peak_bytes(schedule, stages);
  if (!plan.lend) {
    return shared_rows(schedule, stages, alone);
  }
  const ScheduleCosts costs = costs_of(plan);
  const std::vector<Bytes> beside =
      memory_beside(plan, schedule, simulate(schedule, costs));
  std::vector<SharedRow> rows =
      shared_rows(schedule, stages, limits_to_lend(plan, alone, beside));
  const std::vector<Bytes> most = simulate_lent_steps(rows, costs).most;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank].limit = std::max(alone[rank], most[rank]);
  }
  return rows;
}

std::vector<SharedRow> judging_rows(const Plan& plan, int microbatches) {
  const Schedule schedule = forward_only(placement_of(plan), microbatches);
  check(schedule);
  return shared_rows(schedule,
                     std::vector<StageBytes>(plan.stages.size()),
                     std::vector<Bytes>(schedule.rows.size()));
}

}  // namespace cleave
