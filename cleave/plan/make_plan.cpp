#include "cleave/plan/make_plan.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cleave/atomic_file.h"
#include "cleave/counted.h"
#include "cleave/error.h"
#include "cleave/plan/candidates.h"
#include "cleave/plan/check_request.h"
#include "cleave/plan/no_fit.h"
#include "cleave/plan/predict.h"
#include "cleave/plan/runner.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/validate.h"

namespace cleave {
namespace {

// The plan without its schedule.
Plan frame_of(const Candidate& candidate, const PlanTask& task) {
  const Draft& draft = *candidate.draft;
  const Profile& profile = draft.scaled().profile;
  Plan plan{.model = profile.model,
            .batch = task.batch,
            .replicas = task.replicas,
            .schedule_name = task.schedule};
  for (const DeviceSpec& device : draft.devices()) {
    plan.devices.push_back({device.name, device.memory});
  }
  const Order order(candidate.passes);
  for (StageId stage; stage.value < draft.stages(); ++stage.value) {
    const int first = candidate.cut.first_layers[stage.value];
    const int end = candidate.cut.first_layers[stage.value + 1];
    StagePlan& made = plan.stages.emplace_back();
    made.rank = order.owner(stage).value();
    for (int layer = first; layer < end; ++layer) {
      made.layers.push_back(profile.layers[layer].name);
    }
    if (task.replicas > 1) {
      made.buckets = buckets_of(profile, first, end, task.bucket);
    }
  }
  return plan;
}

Plan finished(const Candidate& candidate, const PlanTask& task) {
  Plan plan = frame_of(candidate, task);
  Schedule schedule = task.given.value_or(candidate.passes);
  const Schedule frame =
      schedule_frame(plan,
                     stage_ties(candidate.cut.first_layers,
                                candidate.draft->scaled().profile.ties),
                     task.shard_states,
                     task.clips);
  schedule.graph = frame.graph;
  schedule.synchronisation = frame.synchronisation;
  if (!Order(schedule).is_complete()) {
    schedule = complete(schedule);
  }
  check(schedule);
  plan.schedule = std::move(schedule);
  plan.steals = true;
  plan.prediction = predict(plan, candidate.cut.stages);
  const bool shares_cores =
      std::ranges::any_of(candidate.draft->devices(),
                          [](const auto& device) { return device.core >= 0; });
  return with_runner(std::move(plan),
                     {.wants_stealing = task.steals,
                      .ranks_are_processes = task.ranks_are_processes,
                      .shares_cores = shares_cores,
                      .action = mean_action(candidate.cut.stages)});
}

Schedule load_schedule(const std::string& file) {
  const std::string text = read_file(file);
  try {
    Schedule found = parse_schedule(text);
    check(passes_of(found));
    return found;
  } catch (const Error& error) {
    fail(file + ": " + error.problem(), error.fix());
  }
}

// The plan of one replica, with so many of them.
Plan pipeline_plan(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanTask& task) {
  const std::vector<Draft> drafts =
      task.given ? draft_of(*task.given, profile, devices, task)
                 : drafts_for(profile, devices, task);
  if (drafts.empty()) {
    fail("no number of devices gives " + counted(task.stages, "stage") +
             " with the schedule '" + task.schedule + "'",
         "Ask for a multiple of its stages per device, or leave one of them "
         "to the planner.");
  }
  std::vector<Candidate> candidates = cut_drafts(drafts);
  if (candidates.empty()) {
    fail_no_fit(profile.model, drafts);
  }
  if (task.schedule == kAutoSchedule) {
    candidates = most_promising(candidates);
    search_schedules(candidates);
  }
  return finished(fastest_of(candidates), task);
}

MeshTried tried(const Plan& plan) {
  return {.replicas = plan.replicas,
          .devices = static_cast<int>(plan.devices.size()),
          .step = plan.prediction->step,
          .peak = std::ranges::max(plan.prediction->peaks)};
}

// Numbers of replicas to compare.
std::vector<int> replicas_to_try(int devices, const PlanTask& task) {
  if (task.replicas > 0) {
    return {task.replicas};
  }
  std::vector<int> counts;
  for (int count = 1; count <= devices; ++count) {
    const std::int64_t samples = task.batch / count;
    if (devices % count == 0 && samples >= std::max(1, task.microbatches)) {
      counts.push_back(count);
    }
  }
  return counts;
}

}  // namespace

PlanTask with_given_schedule(PlanTask task) {
  if (!names_file(task.schedule)) {
    return task;
  }
  const std::string file = task.schedule.substr(kFileSchedule.size());
  if (!task.given) {
    task.given = load_schedule(file);
  }
  const int found = task.given->microbatches;
  if (task.microbatches > 0 && task.microbatches != found) {
    fail("the schedule in " + file + " has " + counted(found, "microbatch") +
             ", and " + std::to_string(task.microbatches) + " are asked for",
         "Make them agree, or leave parallel.microbatches out.");
  }
  task.microbatches = found;
  return task;
}

Plan make_plan(const Profile& profile,
               const std::vector<DeviceSpec>& devices,
               const PlanTask& wanted) {
  const PlanTask task = with_given_schedule(wanted);
  check_request(profile, devices, task);
  const auto count = static_cast<int>(devices.size());
  std::vector<MeshTried> compared;
  std::optional<Plan> best;
  std::optional<Error> problem;
  for (const int replicas : replicas_to_try(count, task)) {
    compared.push_back({.replicas = replicas, .devices = count / replicas});
    PlanTask part = task;
    part.replicas = replicas;
    part.batch = (task.batch + replicas - 1) / replicas;
    try {
      Plan plan = pipeline_plan(profile, devices, part);
      compared.back() = tried(plan);
      if (!best ||
          kWorthADevice * plan.prediction->step < best->prediction->step) {
        best = std::move(plan);
      }
    } catch (const Error& error) {
      problem = error;
    }
  }
  if (!best) {
    throw Error(*problem);
  }
  best->batch = task.batch;
  if (compared.size() > 1) {
    best->prediction->compared = std::move(compared);
  }
  return *std::move(best);
}

}  // namespace cleave
