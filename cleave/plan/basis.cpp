#include "cleave/plan/basis.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "cleave/plan/picoseconds.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/memory.h"
#include "cleave/schedule/simulate.h"
#include "cleave/schedule/simulate_lending.h"
#include "cleave/schedule/waiting.h"

namespace cleave {
namespace {

constexpr int kMicrobatchesPerDevice = 4;

// What the request asks for, or what it leaves to the planner.
int microbatches_for(int devices, const PlanRequest& request) {
  if (request.microbatches > 0) {
    return request.microbatches;
  }
  const std::int64_t wanted = std::int64_t{kMicrobatchesPerDevice} * devices;
  return static_cast<int>(std::min(wanted, request.batch));
}

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
    for (const auto bytes : kLayerSizes) {
      layer.*bytes = grown(layer.*bytes);
    }
    for (const auto bytes : kLayerNeeds) {
      layer.*bytes = std::max(layer.*bytes, grown(layer.*bytes));
    }
  }
  return result;
}

// What one replica has of these parameters where they are divided.
Bytes own_section(Bytes parameters, const PlanRequest& request) {
  const int replicas = std::max(1, request.replicas);
  return {(parameters.value + replicas - 1) / replicas};
}

// Those that stay from one microbatch to the next.
Bytes gradient_memory(Bytes parameters, const PlanRequest& request) {
  return request.shard == Shard::gradients ? own_section(parameters, request)
                                           : parameters;
}

// What a backward needs with one more layer, which comes first in it: what is
// needed behind that is above what the layer leaves of what it kept.
Bytes need_behind(Bytes needed, Bytes left, Bytes own) {
  return std::max(needed + left, own);
}

void add_layer(const LayerCost& layer, double speed, StagePlan& stage) {
  stage.layers.push_back(layer.name);
  stage.forward += layer.forward / speed;
  stage.backward += layer.backward / speed;
  stage.weight += layer.weight / speed;
  stage.update += layer.update / speed;
  stage.parameters += layer.parameters;
  stage.fixed += layer.copies;
  stage.activations += layer.activations;
  stage.kept_for_weights += layer.kept_for_weights;
  stage.backward_need = need_behind(stage.backward_need,
                                    layer.kept_for_weights - layer.activations,
                                    layer.backward_need);
  stage.whole_need = need_behind(
      stage.whole_need, Bytes{} - layer.activations, layer.whole_need);
  stage.first_whole_need = need_behind(stage.first_whole_need,
                                       layer.parameters - layer.activations,
                                       layer.first_whole_need);
  // Layers may have kept the same for their weights, and only the last lets go.
  stage.weight_need = std::max(stage.weight_need, layer.weight_need);
  stage.first_weight_need =
      need_behind(stage.first_weight_need,
                  std::max(Bytes{}, layer.parameters - layer.kept_for_weights),
                  layer.first_weight_need);
}

// Where there is nothing to do for weights, nothing is done.
void add_overhead(const StageOverhead& overhead,
                  double speed,
                  StagePlan& stage) {
  stage.forward += overhead.forward / speed;
  stage.backward += overhead.backward / speed;
  stage.weight +=
      (stage.weight > Seconds{} ? overhead.weight : Seconds{}) / speed;
  stage.update +=
      (stage.update > Seconds{} ? overhead.update : Seconds{}) / speed;
}

// Values belong to the last stage they went to, also while an earlier one keeps
// them, and messages to who sent them until they are taken.
void add_messages(const PlanBasis& basis,
                  int first,
                  int end,
                  StagePlan& stage) {
  const std::vector<LayerCost>& layers = basis.profile.layers;
  if (first > 0) {
    const LayerCost& before = layers[first - 1];
    stage.returning = before.crossing;
    stage.shared = std::max(Bytes{}, before.crossing - before.loose);
  }
  if (end < std::ssize(layers)) {
    const LayerCost& last = layers[end - 1];
    stage.leaving = last.loose;
    stage.message = whole_picoseconds(message_time(last, basis.request));
  }
}

// A layer as one of a stage, with what its own backward lets go of: not what no
// layer keeps, nor what leaves the stage, but what this layer is the first to
// keep, and all that the stage was given if it is its first.
LayerCost layer_in_stage(const std::vector<LayerCost>& layers,
                         int layer,
                         int first) {
  LayerCost cost = layers[layer];
  cost.activations = cost.activations - cost.loose;
  if (layer > 0) {
    const LayerCost& before = layers[layer - 1];
    cost.activations += layer == first ? before.crossing : before.loose;
  }
  return cost;
}

bool have_common_caches(const StagePlan& one, const StagePlan& other) {
  return one.device == other.device ||
         (one.core >= 0 && one.core == other.core);
}

// From the time of steps that follow each other, and one of them alone.
void predict_step(Plan& plan, Seconds period, const Timeline& timeline) {
  plan.step = whole_picoseconds(period);
  Seconds busy;
  for (const Seconds of_rank : timeline.busy) {
    busy += of_rank;
  }
  const auto ranks = static_cast<double>(timeline.busy.size());
  plan.bubble =
      plan.step.value > 0 ? std::max(0.0, 1 - busy / (ranks * plan.step)) : 0;
}

// `peaks`: by rank, what its row needs with messages that wait, and with the
// gradients when they are there. A plan that was found to fit still does: where
// its devices keep time, no more messages wait.
void predict_peaks(Plan& plan, std::vector<Bytes> peaks) {
  const std::vector<Rank> ranks = placement_of(plan);
  std::ranges::transform(
      peaks, memory_beside(plan), peaks.begin(), std::plus<>());
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    StagePlan& stage = plan.stages[i];
    const Bytes peak = peaks[ranks[i].value];
    const bool fitted = stage.peak.value > 0 && stage.peak <= stage.memory;
    stage.peak = fitted ? std::min(peak, stage.memory) : peak;
  }
}

std::vector<Bytes> limits_of(const std::vector<SharedRow>& rows) {
  std::vector<Bytes> limits;
  limits.reserve(rows.size());
  for (const SharedRow& row : rows) {
    limits.push_back(row.limit);
  }
  return limits;
}

// From step to step, the median of several ways in which actions and devices
// may differ as they did in the profile. Nobody is held up: that happens in few
// steps.
Seconds unsteady_period(const Plan& plan,
                        const std::vector<SharedRow>& rows,
                        const ScheduleCosts& costs,
                        const Profile& profile) {
  constexpr double kMost = 0.3;  // above that it was another machine
  constexpr std::int64_t kMostWays = 9;
  constexpr std::int64_t kEffort = 100'000;  // actions
  const auto ways = static_cast<unsigned>(std::clamp<std::int64_t>(
      kEffort / actions_in_lent_steps(rows), 1, kMostWays));
  std::vector<Seconds> periods;
  for (unsigned way = 0; way < ways; ++way) {
    const Disturbance disturbance{.number = way,
                                  .of_actions = std::min(profile.spread, kMost),
                                  .of_ranks = std::min(profile.uneven, kMost),
                                  .held_up = 1};
    periods.push_back(plan.lend
                          ? simulate_lent_steps(rows, costs, disturbance).period
                          : simulate_own_steps(rows, costs, disturbance));
  }
  const auto middle = periods.begin() + ways / 2;
  std::ranges::nth_element(periods, middle);
  return *middle;
}

}  // namespace

PlanBasis::PlanBasis(const Profile& measured,
                     const PlanRequest& wanted,
                     int devices)
    : request(wanted),
      microbatches(microbatches_for(devices, wanted)),
      profile(rescaled(measured, wanted.batch, microbatches)) {}

Seconds message_time(const LayerCost& layer, const PlanRequest& request) {
  return request.message_latency +
         Seconds{static_cast<double>(layer.crossing.value) /
                 request.message_bandwidth};
}

// Parameters, gradients, and the optimizer's states. While replicas add up
// gradients, what the others sent for the own sections is there too; with
// shards also the sums, which otherwise take the place of the gradients.
Bytes parameter_memory(Bytes parameters, const PlanRequest& request) {
  const Bytes section = own_section(parameters, request);
  const Bytes states = request.state_copies *
                       (request.shard == Shard::none ? parameters : section);
  const int sections =
      request.replicas - (request.shard == Shard::none ? 1 : 0);
  const Bytes sums = request.replicas < 2 || request.shard == Shard::gradients
                         ? Bytes{}
                         : sections * section;
  return parameters + gradient_memory(parameters, request) + states + sums;
}

StagePlan stage_of(const PlanBasis& basis,
                   const DeviceSpec& device,
                   int first,
                   int end) {
  StagePlan result{
      .device = device.name, .core = device.core, .memory = device.memory};
  const std::vector<LayerCost>& layers = basis.profile.layers;
  Bytes made = first > 0 ? layers[first - 1].crossing : Bytes{};
  for (int i = first; i < end; ++i) {
    add_layer(layer_in_stage(layers, i, first), device.speed, result);
    made += layers[i].activations;
    result.forward_need =
        std::max(result.forward_need, made + layers[i].working);
  }
  result.activations = std::max(Bytes{}, result.activations);
  add_overhead(basis.profile.overhead, device.speed, result);
  for (Seconds* time :
       {&result.forward, &result.backward, &result.weight, &result.update}) {
    *time = whole_picoseconds(*time);
  }
  result.fixed += parameter_memory(result.parameters, basis.request);
  result.gradients = gradient_memory(result.parameters, basis.request);
  if (basis.request.replicas > 1 && basis.request.shard == Shard::gradients) {
    result.sums = 2 * result.parameters;  // the own ones, and what others sent
  }
  add_messages(basis, first, end, result);
  return result;
}

Seconds foreign_time(Bytes bytes,
                     Seconds ForeignCost::*part,
                     const Profile& profile) {
  const ForeignCost& foreign = profile.foreign;
  return foreign.bytes.value > 0
             ? static_cast<double>(bytes.value) /
                   static_cast<double>(foreign.bytes.value) * foreign.*part
             : Seconds{};
}

void add_foreign(const Profile& profile,
                 const std::vector<double>& speeds,
                 std::vector<StagePlan>& stages) {
  for (std::size_t i = 1; i < stages.size(); ++i) {
    StagePlan& before = stages[i - 1];
    StagePlan& stage = stages[i];
    if (have_common_caches(before, stage)) {
      continue;
    }
    const Bytes crossing = stage.returning;  // a gradient for every value
    const auto add = [&](Seconds& time, auto part, double speed) {
      time = whole_picoseconds(time +
                               foreign_time(crossing, part, profile) / speed);
    };
    add(stage.forward, &ForeignCost::forward, speeds[i]);
    add(before.backward, &ForeignCost::backward, speeds[i - 1]);
  }
}

void predict(Plan& plan, const Schedule& schedule) {
  const ScheduleCosts costs = costs_of(plan);
  const Timeline timeline = simulate(schedule, costs);
  predict_step(plan, period(schedule, costs), timeline);
  std::vector<Bytes> peaks = peak_bytes(schedule, memory_of(plan));
  std::ranges::transform(peaks,
                         messages_waiting(plan, schedule, timeline),
                         peaks.begin(),
                         std::plus<>());
  predict_peaks(plan, std::move(peaks));
}

void predict_unsteady(Plan& plan,
                      const Schedule& schedule,
                      const Profile& profile,
                      Seconds caller) {
  ScheduleCosts costs = costs_of(plan);
  costs.between_steps = caller;
  const std::vector<SharedRow> rows = training_rows(plan, schedule);
  predict_step(plan,
               unsteady_period(plan, rows, costs, profile),
               predicted_timeline(plan, rows));
  predict_peaks(plan,
                plan.lend ? limits_of(rows)
                          : most_bytes_in_order(schedule, memory_of(plan)));
}

bool fits(const Plan& plan) {
  return std::ranges::all_of(plan.stages, [](const StagePlan& stage) {
    return stage.memory.value == 0 || stage.peak <= stage.memory;
  });
}

}  // namespace cleave
