#include "cleave/plan/draft.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cleave/plan/picoseconds.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/simulate.h"
#include "cleave/schedule/validate.h"

namespace cleave {
namespace {

// The profile for microbatches of the plan's size. Where they differ by a
// sample, a step takes the time of the mean, and memory must hold the largest.
Profile rescaled(const Profile& profile, std::int64_t batch, int microbatches) {
  const double profiled = static_cast<double>(profile.microbatch);
  const double mean = static_cast<double>(batch) / microbatches;
  const double largest = std::ceil(mean);
  const auto grown = [&](Bytes bytes) {
    const double value = static_cast<double>(bytes.value) * largest / profiled;
    return Bytes{static_cast<std::int64_t>(std::ceil(value))};
  };
  Profile result = profile;
  for (LayerCost& layer : result.layers) {
    layer.forward = mean / profiled * layer.forward;
    layer.backward = mean / profiled * layer.backward;
    layer.weight = mean / profiled * layer.weight;
    layer.activations = grown(layer.activations);
    layer.kept_for_weights = grown(layer.kept_for_weights);
    layer.crossing = grown(layer.crossing);
  }
  return result;
}

Seconds message_time(const LayerCost& layer, const PlanRequest& request) {
  return request.message_latency +
         Seconds{static_cast<double>(layer.crossing.value) /
                 request.message_bandwidth};
}

// What a layer needs while it computes: backward, the gradients it makes (about
// as much as it kept) and the one it was given (as much as crosses behind it);
// weights, a gradient that is about to be added.
Bytes working_of(const LayerCost& layer) {
  return std::max(layer.activations + layer.crossing, layer.parameters);
}

// The most microbatches of which every stage keeps something.
std::vector<int> most_kept(const Schedule& schedule) {
  std::vector<int> most;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    std::vector<StageBytes> units(schedule.stages);
    units[stage] = {{1}, {1}};
    const std::vector<Bytes> kept = peak_bytes(schedule, units);
    most.push_back(static_cast<int>(std::ranges::max(kept).value));
  }
  return most;
}

}  // namespace

Draft::Draft(const Profile& profile,
             const std::vector<DeviceSpec>& devices,
             const PlanRequest& request,
             std::string schedule,
             int ranks,
             int stages_per_rank)
    : request_(request),
      schedule_(std::move(schedule)),
      microbatches_(microbatches_for(ranks, request)) {
  profile_ = rescaled(profile, request.batch, microbatches_);
  placement_ = placement(schedule_, {ranks, stages_per_rank, microbatches_});
  for (const Rank rank : placement_) {
    devices_.push_back(devices[rank.value]);
  }
  problem_ = cut_problem();
}

// Counted as memory: a parameter, its gradient and its optimizer states; what
// the microbatches in flight keep; and what a layer needs while it computes.
// Not counted: the input data and what libtorch needs for itself. Where devices
// have several stages, each is cut as if it were alone, and fitting_plan() adds
// them up.
CutProblem Draft::cut_problem() const {
  CutProblem problem;
  for (const LayerCost& layer : profile_.layers) {
    problem.layers.push_back(
        {.time = layer.forward + layer.backward + layer.weight,
         .fixed = (2 + request_.state_copies) * layer.parameters,
         .activations = layer.activations,
         .working = working_of(layer)});
    // Both neighbours handle a message forward and one backward.
    problem.cuts.push_back(2 * message_time(layer, request_));
  }
  problem.cuts.pop_back();  // nothing is cut behind the last layer
  const int ranks = std::ranges::max(placement_).value + 1;
  const std::vector<int> in_flight = most_kept(
      make_schedule(schedule_, {ranks, stages() / ranks, microbatches_}));
  for (int stage = 0; stage < stages(); ++stage) {
    problem.devices.push_back({.speed = devices_[stage].speed,
                               .memory = devices_[stage].memory,
                               .in_flight = in_flight[stage]});
  }
  return problem;
}

int Draft::end_of(int stage, const Cut& cut) const {
  return stage + 1 < stages() ? cut[stage + 1]
                              : static_cast<int>(profile_.layers.size());
}

StagePlan Draft::stage_plan(int stage, const Cut& cut) const {
  const DeviceSpec& device = devices_[stage];
  StagePlan result{.device = device.name, .memory = device.memory};
  Bytes working;
  const int end = end_of(stage, cut);
  for (int i = cut[stage]; i < end; ++i) {
    const LayerCost& layer = profile_.layers[i];
    result.layers.push_back(layer.name);
    result.forward += layer.forward / device.speed;
    result.backward += layer.backward / device.speed;
    result.weight += layer.weight / device.speed;
    result.update += layer.update / device.speed;
    result.parameters += layer.parameters;
    result.activations += layer.activations;
    result.kept_for_weights += layer.kept_for_weights;
    working = std::max(working, working_of(layer));
  }
  for (Seconds* time :
       {&result.forward, &result.backward, &result.weight, &result.update}) {
    *time = whole_picoseconds(*time);
  }
  if (stage + 1 < stages()) {
    result.message =
        whole_picoseconds(message_time(profile_.layers[end - 1], request_));
  }
  result.fixed = (2 + request_.state_copies) * result.parameters + working;
  return result;
}

Plan Draft::plan_for(const Cut& cut) const {
  Plan plan{.model = profile_.model,
            .batch = request_.batch,
            .microbatches = microbatches_,
            .schedule = schedule_,
            .stages = {}};
  for (int stage = 0; stage < stages(); ++stage) {
    plan.stages.push_back(stage_plan(stage, cut));
  }
  plan.step = Seconds{1};  // its times are real: costs_of() shall take them
  predict(plan, schedule_of(plan, microbatches_));
  return plan;
}

std::optional<Plan> Draft::fitting_plan(const Cut& cut) const {
  Plan plan = plan_for(cut);
  const bool fits =
      std::ranges::all_of(plan.stages, [](const StagePlan& stage) {
        return stage.memory.value == 0 || stage.peak <= stage.memory;
      });
  return fits ? std::optional(std::move(plan)) : std::nullopt;
}

std::optional<Plan> Draft::best_plan() const {
  CutProblem start = problem_;
  const bool shares_devices = stages() > std::ranges::max(placement_).value + 1;
  if (shares_devices) {
    for (CutDevice& device : start.devices) {
      device.memory = {};
    }
  }
  std::optional<Cut> cut = best_cut(start);
  if (!cut) {
    return std::nullopt;
  }
  std::optional<Plan> best = fitting_plan(*cut);
  for (bool better = true; better;) {
    better = false;
    for (int stage = 1; stage < stages(); ++stage) {
      for (const int by : {-1, 1, -2, 2, -4, 4}) {
        Cut moved = *cut;
        moved[stage] += by;
        if (moved[stage] <= moved[stage - 1] ||
            moved[stage] >= end_of(stage, moved)) {
          continue;
        }
        std::optional<Plan> plan = fitting_plan(moved);
        if (plan && (!best || plan->step < best->step)) {
          best = std::move(plan);
          cut = moved;
          better = true;
        }
      }
    }
  }
  return best;
}

void predict(Plan& plan, const Schedule& schedule) {
  const ScheduleCosts costs = costs_of(plan);
  plan.step = whole_picoseconds(period(schedule, costs));
  const Timeline timeline = simulate(schedule, costs);
  Seconds busy;
  for (const Seconds of_rank : timeline.busy) {
    busy += of_rank;
  }
  const auto ranks = static_cast<double>(timeline.busy.size());
  plan.bubble =
      plan.step.value > 0 ? std::max(0.0, 1 - busy / (ranks * plan.step)) : 0;
  std::vector<StageBytes> kept;
  for (const StagePlan& stage : plan.stages) {
    kept.push_back({stage.activations, stage.kept_for_weights});
  }
  std::vector<Bytes> peaks = peak_bytes(schedule, kept);
  const std::vector<Rank> ranks_of = placement_of(plan);
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    peaks[ranks_of[i].value] += plan.stages[i].fixed;
  }
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    plan.stages[i].peak = peaks[ranks_of[i].value];
  }
}

}  // namespace cleave
