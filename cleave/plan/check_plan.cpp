#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/counted.h"
#include "cleave/error.h"
#include "cleave/nearest.h"
#include "cleave/plan/plan.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/validate.h"

namespace cleave {
namespace {

using Names = std::vector<std::string>;

// Far beyond any real plan; products of these fit an int.
constexpr std::int64_t kMostRanks = 65'536;
constexpr int kMostMicrobatches = 99'999;  // as many as a row can name

bool contains(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string stage_text(int stage) {
  return "stage " + std::to_string(stage);
}

void check_sizes(const Plan& plan) {
  const std::int64_t ranks = plan.replicas * std::ssize(plan.devices);
  if (ranks > kMostRanks) {
    fail("the plan has " + counted(ranks, "rank"),
         "Take at most " + std::to_string(kMostRanks) + ".");
  }
  const int microbatches = plan.schedule.microbatches;
  const std::int64_t all = std::int64_t{plan.replicas} * microbatches;
  if (microbatches > kMostMicrobatches ||
      all > std::numeric_limits<int>::max()) {
    fail("the plan has " + counted(microbatches, "microbatch") +
             " on each of " + counted(plan.replicas, "replica"),
         "Take at most " + std::to_string(kMostMicrobatches) +
             ", and fewer where there are many replicas.");
  }
  if (plan.stages.empty()) {
    fail("the plan has no stages", "Give it at least one.");
  }
}

void check_numbers(const Plan& plan) {
  const int microbatches = plan.schedule.microbatches;
  if (plan.batch < 1 || microbatches < 1 || plan.replicas < 1 ||
      microbatches > plan.batch / plan.replicas) {
    fail("the plan splits a batch of " + std::to_string(plan.batch) +
             " samples into " + std::to_string(microbatches) + " microbatches" +
             (plan.replicas == 1
                  ? ""
                  : " on each of " + std::to_string(plan.replicas) +
                        " replicas"),
         "Give every microbatch at least one sample.");
  }
  if (plan.steals && plan.replicas > 1) {
    fail("the plan has " + std::to_string(plan.replicas) +
             " replicas whose devices steal work, but only those of one "
             "replica can",
         "Set \"steals\" to false, or \"replicas\" to 1.");
  }
  check_sizes(plan);
  if (plan.prediction &&
      (plan.prediction->stages.size() != plan.stages.size() ||
       plan.prediction->peaks.size() != plan.devices.size())) {
    fail("the plan's prediction is of other stages or devices",
         "Delete the prediction: a plan runs without.");
  }
}

// What a stage's buckets must be where there are replicas.
void check_bucket_layers(const StagePlan& stage, const std::string& name) {
  std::set<std::string> seen;
  const auto check_layer = [&](const std::string& layer) {
    if (!contains(stage.layers, layer)) {
      fail("a bucket of " + name + " has '" + layer +
               "', which is no layer of that stage",
           "Name layers of the stage, or plan again.");
    }
    if (!seen.insert(layer).second) {
      fail("layer '" + layer + "' stands twice in the buckets of " + name,
           "Delete one of them.");
    }
  };
  for (const Names& bucket : stage.buckets) {
    std::ranges::for_each(bucket, check_layer);
  }
}

void check_buckets(const Plan& plan) {
  for (int i = 0; const StagePlan& stage : plan.stages) {
    const std::string name = stage_text(i);
    if (plan.replicas == 1 && !stage.buckets.empty()) {
      fail(name + " has buckets, but there is one replica", "Delete them.");
    }
    if (plan.replicas > 1 && stage.buckets.empty()) {
      fail(name + " has no buckets, but there are " +
               std::to_string(plan.replicas) + " replicas",
           "Plan again, or name its layers in a bucket.");
    }
    check_bucket_layers(stage, name);
    ++i;
  }
}

// What the plan and its schedule both say.
void check_frame(const Plan& plan) {
  const Schedule& schedule = plan.schedule;
  if (schedule.stages() != std::ssize(plan.stages)) {
    fail("the plan has " + counted(std::ssize(plan.stages), "stage") +
             " and a schedule of " + counted(schedule.stages(), "stage"),
         "Make them agree.");
  }
  for (const StageTie& tie : schedule.graph.ties()) {
    if (!schedule.graph.contains(tie.earlier) ||
        !schedule.graph.contains(tie.later) || tie.later <= tie.earlier) {
      fail("the plan ties " + stage_text(tie.earlier.value) + " to " +
               stage_text(tie.later.value),
           "Tie an earlier stage to a later one.");
    }
  }
  const Synchronisation& all = schedule.synchronisation;
  const Schedule frame =
      schedule_frame(plan, schedule.graph.ties(), all.shard_states, all.clips);
  if (all != frame.synchronisation) {
    fail("the plan's schedule sums other buckets than the stages have",
         "Plan again.");
  }
}

// The schedule must place the stages as the plan says.
void check_schedule(const Plan& plan) {
  check(plan.schedule);
  const Order order(plan.schedule);
  if (!order.is_complete()) {
    fail("the plan's schedule has no updates",
         "Plan again, or give the schedule to parallel.schedule as file:NAME.");
  }
  if (plan.schedule.rows.size() != plan.devices.size()) {
    fail("the plan has " + counted(std::ssize(plan.devices), "device") +
             " and a schedule of " +
             counted(std::ssize(plan.schedule.rows), "rank"),
         "Give every rank one device.");
  }
  for (StageId stage; stage.value < plan.schedule.stages(); ++stage.value) {
    const Rank rank = order.owner(stage).value();
    const Rank planned = plan.stages[stage.value].rank;
    if (rank != planned) {
      fail(stage_text(stage.value) + " is on rank " +
               std::to_string(planned.value) +
               " in the plan's stages and on rank " +
               std::to_string(rank.value) + " in its schedule",
           "Make them agree.");
    }
  }
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

void check_layers(const Plan& plan, const Names& layers) {
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

}  // namespace

void check_plan(const Plan& plan) {
  check_numbers(plan);
  check_buckets(plan);
  check_frame(plan);
  check_schedule(plan);
}

void check_plan(const Plan& plan,
                const std::vector<std::string>& layers,
                const std::vector<LayerTie>& ties) {
  check_numbers(plan);
  check_layers(plan, layers);
  if (stage_ties(first_layers_of(plan), ties) != plan.schedule.graph.ties()) {
    fail("the plan's ties are not those of the model's shared weights",
         "Plan again: which stages share weights depends on the cuts.");
  }
  check_plan(plan);
}

}  // namespace cleave
