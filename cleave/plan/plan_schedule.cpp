#include "cleave/plan/plan_schedule.h"

#include <algorithm>
#include <string>

#include "cleave/error.h"
#include "cleave/schedule/lending_limits.h"
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

// Where devices lend, each may need this share more than in order, and this one
// if that is what it takes that nobody is stuck.
constexpr int kRoomShare = 10;
constexpr int kMostRoomShare = 4;

// That share more than these peaks, for every device as far as its budget goes.
std::vector<Bytes> room_to_lend(const Plan& plan,
                                const std::vector<Bytes>& peaks,
                                int share) {
  const std::vector<Rank> placement = placement_of(plan);
  std::vector<Bytes> budgets(peaks.size());
  for (std::size_t i = 0; i < placement.size(); ++i) {
    budgets[placement[i].value] = plan.stages[i].memory;
  }
  std::vector<Bytes> rooms;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    const Bytes room{peaks[rank].value / share};
    const Bytes left = budgets[rank] - peaks[rank];
    rooms.push_back(budgets[rank].value > 0 ? std::min(room, left) : room);
  }
  return rooms;
}

std::vector<Bytes> sum_of(std::vector<Bytes> some,
                          const std::vector<Bytes>& others) {
  for (std::size_t i = 0; i < some.size(); ++i) {
    some[i] += others[i];
  }
  return some;
}

// By rank; empty where nobody shares one.
std::vector<int> shared_cores(const Plan& plan) {
  if (!share_cores(plan)) {
    return {};
  }
  const std::vector<Rank> placement = placement_of(plan);
  std::vector<int> cores(rank_count(plan), -1);
  for (std::size_t i = 0; i < placement.size(); ++i) {
    cores[placement[i].value] = plan.stages[i].core;
  }
  return cores;
}

StageBytes memory_of(const StagePlan& stage) {
  return {.kept = stage.activations,
          .kept_for_weights = stage.kept_for_weights,
          .forward_need = stage.forward_need,
          .backward_need = stage.backward_need,
          .whole_need = stage.whole_need,
          .first_whole_need = stage.first_whole_need,
          .weight_need = stage.weight_need,
          .first_weight_need = stage.first_weight_need,
          .gradients = stage.gradients,
          .sums = stage.sums,
          .leaving = stage.leaving,
          .returning = stage.returning,
          .shared = stage.shared};
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

Mesh mesh_of(const Plan& plan) {
  return {.replicas = plan.replicas, .places = rank_count(plan)};
}

bool share_cores(const Plan& plan) {
  return std::ranges::any_of(
      plan.stages, [](const StagePlan& stage) { return stage.core >= 0; });
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
  costs.moving = plan.moving;
  costs.cores = shared_cores(plan);
  return costs;
}

std::vector<StageBytes> memory_of(const Plan& plan) {
  std::vector<StageBytes> stages;
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(memory_of(stage));
  }
  return stages;
}

std::vector<Bytes> memory_beside(const Plan& plan) {
  std::vector<Bytes> always(rank_count(plan));
  const std::vector<Rank> placement = placement_of(plan);
  for (std::size_t i = 0; i < placement.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    always[placement[i].value] += stage.fixed - stage.gradients;
  }
  return always;
}

std::vector<Bytes> messages_waiting(const Plan& plan,
                                    const Schedule& schedule,
                                    const Timeline& timeline) {
  std::vector<Bytes> waiting =
      waiting_bytes(schedule, timeline, memory_of(plan));
  std::vector<Bytes> one_each(waiting.size());
  const std::vector<Rank> placement = placement_of(plan);
  for (std::size_t i = 0; i < placement.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    one_each[placement[i].value] +=
        stage.leaving + stage.returning + stage.shared;
  }
  for (std::size_t rank = 0; rank < waiting.size(); ++rank) {
    waiting[rank] = std::max(waiting[rank], one_each[rank]);
  }
  return waiting;
}

SearchProblem search_problem_of(const Plan& plan, int microbatches) {
  SearchProblem problem{.placement = placement_of(plan),
                        .microbatches = microbatches,
                        .costs = costs_of(plan),
                        .memory = memory_of(plan),
                        .limits = std::vector<Bytes>(rank_count(plan))};
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    Bytes& limit = problem.limits[problem.placement[i].value];
    if (stage.memory.value > 0) {
      limit = limit.value == 0 ? stage.memory : limit;
      limit = std::max(
          Bytes{1},
          limit - stage.fixed - stage.leaving - stage.returning - stage.shared);
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
  const std::vector<StageBytes> stages = memory_of(plan);
  const std::vector<Bytes> alone = peak_bytes(schedule, stages);
  if (!plan.lend) {
    return shared_rows(schedule, stages, alone);
  }
  const ScheduleCosts costs = costs_of(plan);
  const std::vector<Bytes> waiting =
      messages_waiting(plan, schedule, simulate(schedule, costs));
  const std::vector<Bytes> beside = memory_beside(plan);
  const std::vector<Bytes> in_order = sum_of(alone, waiting);
  const std::vector<Bytes> peaks = sum_of(in_order, beside);
  std::vector<SharedRow> rows = shared_rows(
      schedule, stages, sum_of(alone, room_to_lend(plan, peaks, kRoomShare)));
  const std::vector<Bytes> widest =
      sum_of(in_order, room_to_lend(plan, peaks, kMostRoomShare));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank].limit = widest[rank];
    // Who names a schedule gets it; one that was searched is free to change.
    rows[rank].in_order = plan.schedule != kAutoSchedule;
  }
  const std::vector<Bytes> limits =
      lending_limits(rows, costs, in_order, beside);
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank].limit = limits[rank];
  }
  return rows;
}

Timeline predicted_timeline(const Plan& plan,
                            const std::vector<SharedRow>& rows) {
  const ScheduleCosts costs = costs_of(plan);
  return plan.lend ? simulate_lending(rows, costs) : simulate_own(rows, costs);
}

std::vector<SharedRow> evaluation_rows(const Plan& plan, int microbatches) {
  const Schedule schedule = forward_only(placement_of(plan), microbatches);
  check(schedule);
  return shared_rows(schedule,
                     std::vector<StageBytes>(plan.stages.size()),
                     std::vector<Bytes>(schedule.rows.size()));
}

}  // namespace cleave
