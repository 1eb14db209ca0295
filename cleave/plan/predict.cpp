#include "cleave/plan/predict.h"

#include <algorithm>
#include <utility>

#include "cleave/error.h"
#include "cleave/plan/picoseconds.h"
#include "cleave/schedule/complete.h"
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

// Forwards alone: nothing is kept for a way back. So all that crosses a cut
// waits in a message, as much as the gradient that would come back.
std::vector<StageBytes> evaluation_memory(
    const StageGraph& graph, const std::vector<StagePrediction>& stages) {
  std::vector<StageBytes> memory;
  for (StageId stage; stage.value < std::ssize(stages); ++stage.value) {
    StageBytes& own = memory.emplace_back();
    own.forward_need = stages[stage.value].memory.forward_need;
    for (const StageId reader : graph.readers(stage)) {
      own.leaving =
          std::max(own.leaving, stages[reader.value].memory.returning);
    }
  }
  return memory;
}

// For every rank, of a batch of so many microbatches.
std::vector<Bytes> evaluation_bounds(const Schedule& schedule,
                                     const std::vector<StagePrediction>& stages,
                                     int microbatches) {
  return peak_bytes(
      with_microbatches(evaluation_of(schedule), microbatches, microbatches),
      evaluation_memory(schedule.graph, stages));
}

double all_bytes(const StagePrediction& stage) {
  const StageBytes& memory = stage.memory;
  double sum = 0;
  for (const Bytes each : {memory.kept,
                           memory.kept_for_weights,
                           memory.forward_need,
                           memory.backward_need,
                           memory.whole_need,
                           memory.weight_need,
                           memory.sums,
                           memory.leaving,
                           memory.returning,
                           memory.shared,
                           stage.fixed}) {
    sum += static_cast<double>(each.value);
  }
  return sum;
}

double all_seconds(const StageCost& cost) {
  return cost.forward.value + cost.backward.value + cost.weight.value +
         cost.update.value + cost.values.value + cost.gradients.value +
         cost.reduce.value;
}

// Sums over a step must not overflow.
void check_stages(const Plan& plan,
                  const std::vector<StagePrediction>& stages) {
  constexpr double kMostBytes = 1e18;
  constexpr double kMostSeconds = 1e6;
  const char* const fix = "Delete the prediction: a plan runs without.";
  if (stages.size() != plan.stages.size()) {
    fail("the plan's prediction is of other stages", fix);
  }
  double bytes = 0;
  double seconds = 0;
  for (const StagePrediction& stage : stages) {
    bytes += all_bytes(stage);
    seconds += all_seconds(stage.cost);
  }
  const double times = plan.schedule.microbatches;
  if (bytes * times > kMostBytes || seconds * times > kMostSeconds) {
    fail("the plan's prediction has times or bytes that are too large", fix);
  }
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

std::vector<Bytes> in_order_bounds(const Schedule& schedule,
                                   const std::vector<StagePrediction>& stages) {
  std::vector<Bytes> bounds = peak_bytes(schedule, memory_of(stages));
  const std::vector<Bytes> evaluating = evaluation_bounds(schedule, stages, 1);
  for (std::size_t rank = 0; rank < bounds.size(); ++rank) {
    bounds[rank] = std::max(bounds[rank], evaluating[rank]);
  }
  return bounds;
}

std::int64_t evaluation_batch(const Plan& plan) {
  if (!plan.prediction) {
    return plan.batch;
  }
  const std::vector<StagePrediction>& stages = plan.prediction->stages;
  const std::vector<Bytes> bounds = in_order_bounds(plan.schedule, stages);
  const auto fits = [&](int microbatches) {
    const std::vector<Bytes> needed =
        evaluation_bounds(plan.schedule, stages, microbatches);
    return std::ranges::equal(needed, bounds, std::ranges::less_equal());
  };
  const int all = plan.schedule.microbatches;
  if (fits(all)) {
    return plan.batch;
  }
  int most = 1;  // always fits
  for (int too_many = all; too_many - most > 1;) {
    const int middle = most + (too_many - most) / 2;
    if (fits(middle)) {
      most = middle;
    } else {
      too_many = middle;
    }
  }
  // No microbatch of a step has fewer samples than this.
  const std::int64_t samples = plan.batch / plan.replicas / all;
  return most * samples * plan.replicas;
}

std::vector<Bytes> row_limits(const Schedule& schedule,
                              const std::vector<StagePrediction>& stages,
                              const std::vector<PlannedDevice>& devices,
                              bool steals) {
  std::vector<Bytes> limits = in_order_bounds(schedule, stages);
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
  check_stages(plan, stages);
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
