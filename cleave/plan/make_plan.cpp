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
Plan frame_of(const Candidate& candidate, const PlanRequest& request) {
  const Draft& draft = *candidate.draft;
  const Profile& profile = draft.scaled().profile;
  Plan plan{.model = profile.model,
            .batch = request.batch,
            .replicas = request.replicas,
            .schedule_name = request.schedule};
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
    if (request.replicas > 1) {
      made.buckets = buckets_of(profile, first, end, request.bucket);
    }
  }
  return plan;
}

// `given`: a schedule that was given as text.
Plan finished(const Candidate& candidate,
              const PlanRequest& request,
              const std::optional<Schedule>& given) {
  Plan plan = frame_of(candidate, request);
  Schedule schedule = given.value_or(candidate.passes);
  const Schedule frame =
      schedule_frame(plan,
                     stage_ties(candidate.cut.first_layers,
                                candidate.draft->scaled().profile.ties),
                     request.shard_states,
                     request.clips);
  schedule.graph = frame.graph;
  schedule.synchronisation = frame.synchronisation;
  if (!Order(schedule).is_complete()) {
    schedule = complete(schedule);
  }
  check(schedule);
  plan.schedule = std::move(schedule);
  const bool shares_cores =
      std::ranges::any_of(candidate.draft->devices(),
                          [](const auto& device) { return device.core >= 0; });
  plan.in_order_because =
      why_in_order(plan, candidate.cut.stages, request, shares_cores);
  plan.steals = plan.in_order_because.empty();
  plan.prediction = predict(plan, candidate.cut.stages);
  return plan;
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

std::optional<Schedule> given_schedule(const PlanRequest& request) {
  if (!names_file(request.schedule)) {
    return std::nullopt;
  }
  const std::string file = request.schedule.substr(kFileSchedule.size());
  Schedule given = load_schedule(file);
  if (request.microbatches > 0 && request.microbatches != given.microbatches) {
    fail("the schedule in " + file + " has " +
             counted(given.microbatches, "microbatch") + ", and " +
             std::to_string(request.microbatches) + " are asked for",
         "Make them agree, or leave parallel.microbatches out.");
  }
  return given;
}

// The plan of one replica, with so many of them.
Plan pipeline_plan(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanRequest& request) {
  const std::optional<Schedule> given = given_schedule(request);
  const std::vector<Draft> drafts =
      given ? draft_of(*given, profile, devices, request)
            : drafts_for(profile, devices, request);
  if (drafts.empty()) {
    fail("no number of devices gives " + counted(request.stages, "stage") +
             " with the schedule '" + request.schedule + "'",
         "Ask for a multiple of its stages per device, or leave one of them "
         "to the planner.");
  }
  std::vector<Candidate> candidates = cut_drafts(drafts);
  if (candidates.empty()) {
    fail_no_fit(profile.model, drafts);
  }
  if (request.schedule == kAutoSchedule) {
    candidates = most_promising(candidates);
    search_schedules(candidates);
  }
  return finished(fastest_of(candidates), request, given);
}

MeshTried tried(const Plan& plan) {
  return {.replicas = plan.replicas,
          .devices = static_cast<int>(plan.devices.size()),
          .step = plan.prediction->step,
          .peak = std::ranges::max(plan.prediction->peaks)};
}

// Numbers of replicas to compare.
std::vector<int> replicas_to_try(int devices, const PlanRequest& request) {
  if (request.replicas > 0) {
    return {request.replicas};
  }
  std::vector<int> counts;
  for (int count = 1; count <= devices; ++count) {
    const std::int64_t samples = request.batch / count;
    if (devices % count == 0 && samples >= std::max(1, request.microbatches)) {
      counts.push_back(count);
    }
  }
  return counts;
}

}  // namespace

int wanted_microbatches(const PlanRequest& request) {
  const std::optional<Schedule> given = given_schedule(request);
  return given ? given->microbatches : request.microbatches;
}

Plan make_plan(const Profile& profile,
               const std::vector<DeviceSpec>& devices,
               const PlanRequest& wanted) {
  PlanRequest request = wanted;
  request.microbatches = wanted_microbatches(wanted);
  check_request(profile, devices, request);
  const auto count = static_cast<int>(devices.size());
  std::vector<MeshTried> compared;
  std::optional<Plan> best;
  std::optional<Error> problem;
  for (const int replicas : replicas_to_try(count, request)) {
    compared.push_back({.replicas = replicas, .devices = count / replicas});
    PlanRequest part = request;
    part.replicas = replicas;
    part.batch = (request.batch + replicas - 1) / replicas;
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
  best->batch = request.batch;
  if (compared.size() > 1) {
    best->prediction->compared = std::move(compared);
  }
  return *std::move(best);
}

}  // namespace cleave
