#include "cleave/plan/stage_costs.h"

#include <algorithm>
#include <cmath>

#include "cleave/plan/picoseconds.h"

namespace cleave {
namespace {

constexpr int kMicrobatchesPerDevice = 4;

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
Bytes own_section(Bytes parameters, const PlanTask& task) {
  const int replicas = std::max(1, task.replicas);
  return {(parameters.value + replicas - 1) / replicas};
}

// Those that stay from one microbatch to the next.
Bytes gradient_memory(Bytes parameters, const PlanTask& task) {
  return task.shard_states == ShardStates::gradients
             ? own_section(parameters, task)
             : parameters;
}

// What a backward needs with one more layer, which comes first in it: what is
// needed behind that is above what the layer leaves of what it kept.
Bytes need_behind(Bytes needed, Bytes left, Bytes own) {
  return std::max(needed + left, own);
}

void add_layer(const LayerCost& layer, double speed, StagePrediction& stage) {
  StageCost& cost = stage.cost;
  cost.forward += layer.forward / speed;
  cost.backward += layer.backward / speed;
  cost.weight += layer.weight / speed;
  cost.update += layer.update / speed;
  stage.parameters += layer.parameters;
  stage.fixed += layer.copies;
  StageBytes& memory = stage.memory;
  memory.kept += layer.activations;
  memory.kept_for_weights += layer.kept_for_weights;
  memory.backward_need = need_behind(memory.backward_need,
                                     layer.kept_for_weights - layer.activations,
                                     layer.backward_need);
  memory.whole_need = need_behind(
      memory.whole_need, Bytes{} - layer.activations, layer.whole_need);
  // Layers may have kept the same for their weights, and only the last lets go.
  memory.weight_need = std::max(memory.weight_need, layer.weight_need);
}

// Where there is nothing to do for weights, nothing is done.
void add_overhead(const StageOverhead& overhead,
                  double speed,
                  StageCost& cost) {
  cost.forward += overhead.forward / speed;
  cost.backward += overhead.backward / speed;
  cost.weight +=
      (cost.weight > Seconds{} ? overhead.weight : Seconds{}) / speed;
  cost.update +=
      (cost.update > Seconds{} ? overhead.update : Seconds{}) / speed;
}

// Values belong to the last stage they went to, also while an earlier one keeps
// them. A message belongs to the stage that sent it until it is taken.
void add_messages(const ScaledRequest& scaled,
                  int first,
                  int end,
                  StagePrediction& stage) {
  const std::vector<LayerCost>& layers = scaled.profile.layers;
  if (first > 0) {
    const LayerCost& before = layers[first - 1];
    stage.memory.returning = before.crossing;
    stage.memory.shared = std::max(Bytes{}, before.crossing - before.loose);
    stage.cost.gradients = message_time(before, scaled.task);
  }
  if (end < std::ssize(layers)) {
    const LayerCost& last = layers[end - 1];
    stage.memory.leaving = last.loose;
    stage.cost.values = message_time(last, scaled.task);
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

// Every replica sends and receives all but its own section, twice; the sums of
// a stage are equally long.
Seconds time_of_sum(const StagePrediction& stage,
                    std::size_t sums,
                    const PlanTask& task) {
  const double share =
      2.0 * (task.replicas - 1) / static_cast<double>(task.replicas);
  return {share * static_cast<double>(stage.parameters.value) /
          task.messages.sum_bandwidth / static_cast<double>(sums)};
}

}  // namespace

ScaledRequest::ScaledRequest(const Profile& measured,
                             const PlanTask& wanted,
                             int microbatches_of_each)
    : task(wanted),
      microbatches(microbatches_of_each),
      profile(rescaled(measured, wanted.batch, microbatches_of_each)) {}

int microbatches_for(int devices, const PlanTask& task) {
  if (task.microbatches > 0) {
    return task.microbatches;
  }
  const std::int64_t wanted = std::int64_t{kMicrobatchesPerDevice} * devices;
  return static_cast<int>(std::min(wanted, task.batch));
}

Seconds message_time(const LayerCost& layer, const PlanTask& task) {
  return task.messages.latency +
         Seconds{static_cast<double>(layer.crossing.value) /
                 task.messages.bandwidth};
}

// Parameters, gradients, and the optimizer's states. While replicas add up
// gradients, what the others sent for the own sections is there too; with
// shards also the sums, which otherwise take the place of the gradients.
Bytes parameter_memory(Bytes parameters, const PlanTask& task) {
  const Bytes section = own_section(parameters, task);
  const Bytes states =
      task.state_copies *
      (task.shard_states == ShardStates::none ? parameters : section);
  const int sections =
      task.replicas - (task.shard_states == ShardStates::none ? 1 : 0);
  const Bytes sums =
      task.replicas < 2 || task.shard_states == ShardStates::gradients
          ? Bytes{}
          : sections * section;
  return parameters + gradient_memory(parameters, task) + states + sums;
}

StagePrediction stage_cost(const ScaledRequest& scaled,
                           const DeviceSpec& device,
                           int first,
                           int end) {
  StagePrediction stage;
  const PlanTask& task = scaled.task;
  const std::vector<LayerCost>& layers = scaled.profile.layers;
  Bytes made = first > 0 ? layers[first - 1].crossing : Bytes{};
  for (int i = first; i < end; ++i) {
    add_layer(layer_in_stage(layers, i, first), device.speed, stage);
    made += layers[i].activations;
    stage.memory.forward_need =
        std::max(stage.memory.forward_need, made + layers[i].working);
  }
  stage.memory.kept = std::max(Bytes{}, stage.memory.kept);
  add_overhead(scaled.profile.overhead, device.speed, stage.cost);
  stage.fixed += parameter_memory(stage.parameters, task);
  add_messages(scaled, first, end, stage);
  if (task.replicas > 1) {
    const bool each = task.shard_states == ShardStates::gradients;
    if (each) {
      stage.memory.sums = 2 * stage.parameters;  // own ones, and what others
                                                 // sent
    }
    const std::size_t buckets =
        buckets_of(scaled.profile, first, end, task.bucket).size();
    stage.cost.reduce =
        time_of_sum(stage, each ? scaled.microbatches : buckets, task);
  }
  StageCost& cost = stage.cost;
  for (Seconds* time : {&cost.forward,
                        &cost.backward,
                        &cost.weight,
                        &cost.update,
                        &cost.values,
                        &cost.gradients,
                        &cost.reduce}) {
    *time = whole_picoseconds(*time);
  }
  return stage;
}

std::vector<std::vector<std::string>> buckets_of(const Profile& profile,
                                                 int first,
                                                 int end,
                                                 Bytes bucket) {
  std::vector<std::vector<std::string>> buckets(1);
  Bytes filled;
  for (int i = end - 1; i >= first; --i) {
    const LayerCost& layer = profile.layers[i];
    if (layer.parameters == Bytes{}) {
      continue;
    }
    if (filled >= bucket && filled > Bytes{}) {
      buckets.emplace_back();
      filled = {};
    }
    buckets.back().push_back(layer.name);
    filled += layer.parameters;
  }
  return buckets;
}

}  // namespace cleave
