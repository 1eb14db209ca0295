#include "cleave/plan/runner.h"

#include <utility>

#include "cleave/plan/predict.h"

namespace cleave {
namespace {

// An action that another rank does takes some 15 us longer.
constexpr Seconds kWorthStealing{1.5e-4};

}  // namespace

Seconds mean_action(const std::vector<StagePrediction>& stages) {
  Seconds sum;
  for (const StagePrediction& stage : stages) {
    sum += stage.cost.forward + stage.cost.backward + stage.cost.weight;
  }
  return sum / (2.0 * static_cast<double>(stages.size()));
}

std::string why_in_order(const Plan& plan, const RunnerFacts& facts) {
  if (plan.replicas > 1) {
    return "replicas sum gradients in one order";
  }
  if (plan.devices.size() < 2) {
    return "there is one device";
  }
  if (facts.ranks_are_processes) {
    return "ranks are processes";
  }
  if (!facts.wants_stealing) {
    return "stealing is off";
  }
  if (facts.shares_cores) {
    return "devices share cores";
  }
  if (facts.action > Seconds{} && facts.action < kWorthStealing) {
    return "actions are too short";
  }
  return "";
}

Plan with_runner(Plan plan, const RunnerFacts& facts) {
  std::string why = why_in_order(plan, facts);
  if (!plan.steals || why.empty()) {
    return plan;
  }
  plan.steals = false;
  plan.in_order_because = std::move(why);
  if (plan.prediction) {
    std::vector<MeshTried> compared = std::move(plan.prediction->compared);
    plan.prediction = predict(plan, std::move(plan.prediction->stages));
    plan.prediction->compared = std::move(compared);
  }
  return plan;
}

}  // namespace cleave
