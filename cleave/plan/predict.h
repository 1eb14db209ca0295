#pragma once

#include <cstdint>
#include <vector>

#include "cleave/plan/plan.h"
#include "cleave/schedule/simulate.h"

// What stages cost, and what a schedule makes of that.
namespace cleave {

ScheduleCosts costs_of(const std::vector<StagePrediction>& stages);
std::vector<StageBytes> memory_of(const std::vector<StagePrediction>& stages);

// The plan's predicted times; where it has none its stages are taken to be
// even.
ScheduleCosts costs_of(const Plan& plan);

// For every rank, what its rows keep and need in memory beside what is fixed,
// at most, when ranks work in order with any timing. Counts training, and
// evaluation with one microbatch: see evaluation_batch().
std::vector<Bytes> in_order_bounds(const Schedule& schedule,
                                   const std::vector<StagePrediction>& stages);

// For every rank, what its rows may keep and need in memory beside what is
// fixed: its bound in order. Where ranks steal work
// it is a quarter more, within the devices' budgets.
std::vector<Bytes> row_limits(const Schedule& schedule,
                              const std::vector<StagePrediction>& stages,
                              const std::vector<PlannedDevice>& devices,
                              bool steals);

// The samples to evaluate at once so that no rank needs more memory than in
// training: forwards do not wait for backwards, so all messages of a batch can
// wait at once. At most the plan's batch. Without a prediction that is it.
std::int64_t evaluation_batch(const Plan& plan);

// The prediction of a plan whose stages cost that. Throws Error where there is
// not one cost per stage, or they are too large to add up.
// REQUIRES: check_plan() accepts the plan without its prediction.
Prediction predict(const Plan& plan, std::vector<StagePrediction> stages);

// A step of the plan, simulated.
Timeline predicted_timeline(const Plan& plan);

// For every rank, what its stages need all the time.
std::vector<Bytes> fixed_bytes(const std::vector<Rank>& placement,
                               const std::vector<StagePrediction>& stages,
                               std::size_t ranks);

}  // namespace cleave
