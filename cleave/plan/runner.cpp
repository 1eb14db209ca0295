#include "cleave/plan/runner.h"

#include <algorithm>

namespace cleave {
namespace {

// An action that another rank does takes some 15 us longer.
constexpr Seconds kWorthStealing{1.5e-4};

Seconds mean_action(const std::vector<StagePrediction>& stages) {
  Seconds sum;
  for (const StagePrediction& stage : stages) {
    sum += stage.cost.forward + stage.cost.backward + stage.cost.weight;
  }
  return sum / (2.0 * static_cast<double>(stages.size()));
}

}  // namespace

std::string why_in_order(const Plan& plan,
                         const std::vector<StagePrediction>& stages,
                         const PlanRequest& request,
                         bool shares_cores) {
  if (plan.devices.size() < 2) {
    return "there is one device";
  }
  if (request.ranks_are_processes) {
    return "ranks are processes";
  }
  if (!request.steals) {
    return "stealing is off";
  }
  if (plan.replicas > 1) {
    return "replicas sum gradients in one order";
  }
  if (shares_cores) {
    return "devices share cores";
  }
  if (mean_action(stages) < kWorthStealing) {
    return "actions are too short";
  }
  return "";
}

}  // namespace cleave
