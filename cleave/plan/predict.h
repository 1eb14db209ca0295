#pragma once

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

// For every rank, what its row may keep and need in memory beside what is
// fixed: the bound of its row in order, for any timing. Where ranks steal work
// it is a quarter more, within the devices' budgets.
std::vector<Bytes> row_limits(const Schedule& schedule,
                              const std::vector<StagePrediction>& stages,
                              const std::vector<PlannedDevice>& devices,
                              bool steals);

// The prediction of a plan whose stages cost that.
Prediction predict(const Plan& plan, std::vector<StagePrediction> stages);

// A step of the plan, simulated.
Timeline predicted_timeline(const Plan& plan);

// For every rank, what its stages need all the time.
std::vector<Bytes> fixed_bytes(const std::vector<Rank>& placement,
                               const std::vector<StagePrediction>& stages,
                               std::size_t ranks);

}  // namespace cleave
