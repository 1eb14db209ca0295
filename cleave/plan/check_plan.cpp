#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/error.h"
#include "cleave/nearest.h"
#include "cleave/plan/plan.h"
#include "cleave/plan/plan_schedule.h"

namespace cleave {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string stage_text(int stage) {
  return "stage " + std::to_string(stage);
}

void check_numbers(const Plan& plan) {
  if (plan.batch < 1 || plan.microbatches < 1 || plan.replicas < 1 ||
      plan.microbatches > plan.batch / plan.replicas) {
    fail("the plan splits a batch of " + std::to_string(plan.batch) +
             " samples into " + std::to_string(plan.microbatches) +
             " microbatches" +
             (plan.replicas == 1
                  ? ""
                  : " on each of " + std::to_string(plan.replicas) +
                        " replicas"),
         "Give every microbatch at least one sample.");
  }
  if (plan.lend && plan.replicas > 1) {
    fail("the plan has " + std::to_string(plan.replicas) +
             " replicas whose devices lend, but only those of one replica can",
         "Set \"lend\" to false, or \"replicas\" to 1.");
  }
  if (plan.stages.empty()) {
    fail("the plan has no stages", "Give it at least one.");
  }
  schedule_of(plan, 1);  // throws where there is no such schedule
}

// The plan has `found` where the model has `expected`; says what is wrong.
[[noreturn]] void fail_layer(const std::string& found,
                             int stage,
                             const std::string* expected,
                             const std::map<std::string, int>& seen,
                             const Plan& plan,
                             const Names& layers) {
  if (!contains(layers, found)) {
    const std::vector<std::string_view> known(layers.begin(), layers.end());
    const std::string meant = nearest(found, known);
    fail(stage_text(stage) + " has a layer '" + found +
             "', which the model does not have",
         meant.empty() ? "Delete it." : "Did you mean " + meant + "?");
  }
  if (const auto first = seen.find(found); first != seen.end()) {
    fail("layer '" + found + "' stands twice in the plan: in " +
             stage_text(first->second) + " and in " + stage_text(stage),
         "Delete one of them.");
  }
  const bool planned =
      std::ranges::any_of(plan.stages, [&](const StagePlan& other) {
        return contains(other.layers, *expected);
      });
  if (!planned) {
    fail("layer '" + *expected + "' is missing from the plan",
         "Put it in front of '" + found + "' in " + stage_text(stage) + ".");
  }
  fail("layer '" + found + "' in " + stage_text(stage) +
           " is out of order: the model has '" + *expected + "' before it",
       "Keep the layers in the order of the model.");
}

}  // namespace

void check_plan(const Plan& plan, const std::vector<std::string>& layers) {
  check_numbers(plan);
  std::map<std::string, int> seen;  // name to stage
  std::size_t next = 0;
  for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage) {
    if (plan.stages[stage].layers.empty()) {
      fail(stage_text(stage) + " has no layers",
           "Give it at least one, or delete the stage.");
    }
    for (const std::string& found : plan.stages[stage].layers) {
      const std::string* expected =
          next < layers.size() ? &layers[next] : nullptr;
      if (expected == nullptr || found != *expected) {
        fail_layer(found, stage, expected, seen, plan, layers);
      }
      seen.emplace(found, stage);
      ++next;
    }
  }
  if (next < layers.size()) {
    fail("layer '" + layers[next] + "' is missing from the plan",
         "Put it at the end of the last stage.");
  }
}

}  // namespace cleave
