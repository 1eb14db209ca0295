#include "cleave/plan/predict.h"

#include <algorithm>
#include <utility>

#include "cleave/plan/picoseconds.h"
#include "cleave/schedule/memory.h"
#include "cleave/schedule/order.h"

namespace cleave {
namespace {

// Where ranks steal work, a row may need this much of its bound in order.
constexpr std::int64_t kStealingQuarters = 5;

std::vector<Rank> placement_in(const Schedule& schedule) {
  const Order order(schedule);
  std::vector<Rank> placement;
  for (StageId stage; stage.value < schedule.stages(); ++stage.value) {
    placement.push_back(order.owner(stage).value());
  }
  return placement;
}

}  // namespace

ScheduleCosts costs_of(const std::vector<StagePrediction>& stages) {
  ScheduleCosts costs;
  costs.stages.reserve(stages.size());
  for (const StagePrediction& stage : stages) {
    costs.stages.push_back(stage.cost);
  }
  return costs;
}

std::vector<StageBytes> memory_of(const std::vector<StagePrediction>& stages) {
  std::vector<StageBytes> memory;
  memory.reserve(stages.size());
  for (const StagePrediction& stage : stages) {
    memory.push_back(stage.memory);
  }
  return memory;
}

ScheduleCosts costs_of(const Plan& plan) {
  constexpr Seconds kEven{0.001};
  if (plan.prediction) {
    return costs_of(plan.prediction->stages);
  }
  return {std::vector<StageCost>(
      plan.stages.size(),
      {.forward = kEven, .backward = kEven, .weight = kEven})};
}

std::vector<Bytes> fixed_bytes(const std::vector<Rank>& placement,
                               const std::vector<StagePrediction>& stages,
                               std::size_t ranks) {
  std::vector<Bytes> fixed(ranks);
  for (std::size_t i = 0; i < placement.size(); ++i) {
    fixed[placement[i].value] += stages[i].fixed;
  }
  return fixed;
}

std::vector<Bytes> row_limits(const Schedule& schedule,
                              const std::vector<StagePrediction>& stages,
                              const std::vector<PlannedDevice>& devices,
                              bool steals) {
  std::vector<Bytes> limits = peak_bytes(schedule, memory_of(stages));
  if (!steals) {
    return limits;
  }
  const std::vector<Bytes> fixed =
      fixed_bytes(placement_in(schedule), stages, limits.size());
  for (std::size_t rank = 0; rank < limits.size(); ++rank) {
    const Bytes in_order = limits[rank];
    Bytes wider{in_order.value / 4 * kStealingQuarters};
    if (devices[rank].memory > Bytes{}) {
      wider = std::min(wider, devices[rank].memory - fixed[rank]);
    }
    limits[rank] = std::max(in_order, wider);
  }
  return limits;
}

Prediction predict(const Plan& plan, std::vector<StagePrediction> stages) {
  Prediction prediction{.stages = std::move(stages)};
  const ScheduleCosts costs = costs_of(prediction.stages);
  prediction.step = whole_picoseconds(period(plan.schedule, costs));
  Seconds busy;
  const Timeline timeline = simulate(plan.schedule, costs);
  for (const Seconds of_rank : timeline.busy) {
    busy += of_rank;
  }
  const auto ranks = static_cast<double>(timeline.busy.size());
  if (prediction.step > Seconds{}) {
    prediction.bubble = std::max(0.0, 1 - busy / (ranks * prediction.step));
  }
  prediction.peaks =
      row_limits(plan.schedule, prediction.stages, plan.devices, plan.steals);
  const std::vector<Bytes> fixed = fixed_bytes(
      placement_of(plan), prediction.stages, prediction.peaks.size());
  for (std::size_t rank = 0; rank < fixed.size(); ++rank) {
    prediction.peaks[rank] += fixed[rank];
  }
  return prediction;
}

Timeline predicted_timeline(const Plan& plan) {
  return simulate(plan.schedule, costs_of(plan));
}

}  // namespace cleave
