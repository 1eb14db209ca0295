#include "cleave/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cleave/error.h"
#include "cleave/plan/cut.h"
#include "cleave/plan/draft.h"
#include "cleave/plan/picoseconds.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/plan/scatter.h"
#include "cleave/schedule/registry.h"

namespace cleave {
namespace {

// Fewer devices are taken unless more are faster by this factor: a prediction
// is not better than that, and a device must be paid for.
constexpr double kWorthADevice = 1.01;

constexpr int kMicrobatchesPerDevice = 4;

// "3 layers", "1 layer"
std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// "between 1 and 3 stages", "1 stage"
std::string up_to(std::int64_t most, const std::string& noun) {
  return (most == 1 ? "" : "between 1 and ") + counted(most, noun);
}

// 0: any number.
int most_stages_per_device(const PlanRequest& request) {
  return request.stages_per_device > 0 ? request.stages_per_device
         : request.schedule == kAutoSchedule
             ? 2
             : stages_per_rank_of(request.schedule);
}

void check_counts(int layers, int devices, const PlanRequest& request) {
  if (request.stages > layers) {
    fail("cannot cut " + counted(layers, "layer") + " into " +
             counted(request.stages, "stage"),
         "Ask for " + up_to(layers, "stage") + ".");
  }
  const int per_device = most_stages_per_device(request);
  if (per_device > 0 && request.stages > per_device * devices) {
    fail("cannot put " + counted(request.stages, "stage") + " on " +
             counted(devices, "device"),
         "Ask for " + up_to(std::int64_t{per_device} * devices, "stage") +
             ", or name more devices.");
  }
  if (request.microbatches > request.batch) {
    fail("cannot make " + std::to_string(request.microbatches) +
             " microbatches of a batch of " + counted(request.batch, "sample"),
         "Give every microbatch at least one sample.");
  }
  if (request.replicas > devices) {
    fail("cannot put " + counted(request.replicas, "replica") + " on " +
             counted(devices, "device"),
         "Ask for " + up_to(devices, "replica") + ", or name more devices.");
  }
  if (request.replicas > 1 &&
      request.batch / request.replicas < std::max(1, request.microbatches)) {
    fail("a batch of " + counted(request.batch, "sample") +
             " is too small for " + counted(request.replicas, "replica") +
             (request.microbatches > 1
                  ? " with " + counted(request.microbatches, "microbatch")
                  : ""),
         "Give every microbatch of every replica at least one sample.");
  }
}

void check_profile(const Profile& profile) {
  if (profile.layers.empty() || profile.microbatch < 1) {
    fail("the profile of '" + profile.model + "' holds no measured layer",
         "Profile a model with at least one layer.");
  }
  const auto is_time = [](Seconds time) {
    return std::isfinite(time.value) && time.value >= 0;
  };
  if (!std::ranges::all_of(kOverheadTimes, [&](auto time) {
        return is_time(profile.overhead.*time);
      })) {
    fail("the overhead of the profile is below zero, or no number",
         "Profile the model again.");
  }
  for (const LayerCost& layer : profile.layers) {
    if (!std::ranges::all_of(kLayerTimes,
                             [&](auto time) { return is_time(layer.*time); }) ||
        std::min({layer.parameters,
                  layer.activations + layer.let_go,
                  layer.let_go,
                  layer.kept_for_weights,
                  layer.working,
                  layer.crossing}) < Bytes{0}) {
      fail("layer '" + layer.name +
               "' of the profile has a cost below zero, "
               "or one that is no number",
           "Profile the model again.");
    }
  }
}

void check_input(const Profile& profile,
                 const std::vector<DeviceSpec>& devices,
                 const PlanRequest& request) {
  check_profile(profile);
  if (devices.empty()) {
    fail("there is no device to put a stage on", "Name at least one device.");
  }
  for (const DeviceSpec& device : devices) {
    if (!(device.speed > 0) || device.memory.value < 0) {
      fail("device '" + device.name + "' has no sensible speed and memory",
           "Give it a speed above 0 and a memory of 0 (no limit) or more.");
    }
  }
  if (request.batch < 1 || request.stages < 0 ||
      request.stages_per_device < 0 || request.microbatches < 0 ||
      request.replicas < 0 || !(request.sum_bandwidth > 0) ||
      request.state_copies < 0 || !(request.message_latency.value >= 0) ||
      !(request.message_bandwidth > 0)) {
    fail("the request for a plan has a number that is too small",
         "Ask for a batch of at least 1 and a bandwidth above 0; everything "
         "else is 0 or more.");
  }
  check_counts(static_cast<int>(profile.layers.size()),
               static_cast<int>(devices.size()),
               request);
}

// "100 MiB per device", or the range where devices differ.
std::string budget_text(const CutProblem& problem) {
  std::vector<Bytes> budgets;
  for (const CutDevice& device : problem.devices) {
    if (device.memory.value > 0) {
      budgets.push_back(device.memory);
    }
  }
  const auto [least, most] = std::ranges::minmax_element(budgets);
  return to_text(*least) + (*least == *most ? "" : " to " + to_text(*most)) +
         " per device";
}

// Rounded up, so that a budget of what the text says is enough.
std::string at_least(Bytes bytes) {
  Bytes shown = bytes;
  while (parse_bytes(to_text(shown)) < bytes) {
    shown += {1 + shown.value / 1000};  // less than the last digit shown
  }
  return to_text(shown);
}

[[noreturn]] void fail_no_fit(const std::string& model,
                              const std::vector<Draft>& drafts) {
  Bytes smallest;
  int stages = 0;
  int fewest = drafts.front().stages();
  int most = fewest;
  for (const Draft& draft : drafts) {
    fewest = std::min(fewest, draft.stages());
    most = std::max(most, draft.stages());
    const Bytes budget = draft.smallest_budget();
    if (stages == 0 || budget < smallest) {
      smallest = budget;
      stages = draft.stages();
    }
  }
  const std::string count = counted(stages, "stage");
  fail("no cut of '" + model + "' into " +
           (fewest == most ? count
                           : std::to_string(fewest) + " to " +
                                 std::to_string(most) + " stages") +
           " fits a memory of " + budget_text(drafts.back().problem()),
       "Give every device at least " + at_least(smallest) +
           (fewest == most ? "" : ", which is enough for " + count) +
           "; or take more devices, a smaller batch or more microbatches.");
}

// How a schedule can be drafted.
struct DraftKind {
  std::string schedule;
  int stages_per_rank;
};

// "auto" is cut for schedules that stand for what a search can find, with the
// fewest and with more microbatches in memory, one and two stages per device.
std::vector<DraftKind> draft_kinds(const PlanRequest& request) {
  const int asked = request.stages_per_device;
  std::vector<DraftKind> kinds;
  if (request.schedule == kAutoSchedule) {
    if (asked <= 1) {
      kinds = {{"1f1b", 1}, {"zb-h1", 1}, {"zb-h2", 1}};
    }
    if (asked == 0 || asked == 2) {
      kinds.push_back({"zb-v", 2});
    }
    if (asked != 1) {
      kinds.push_back({"interleaved", std::max(asked, 2)});
    }
    return kinds;
  }
  const int fixed = stages_per_rank_of(request.schedule);
  return {{request.schedule,
           asked > 0             ? asked
           : fixed == kAnyNumber ? 2
                                 : fixed}};
}

std::vector<Draft> drafts_for(const Profile& profile,
                              const std::vector<DeviceSpec>& devices,
                              const PlanRequest& request) {
  const auto layers = static_cast<int>(profile.layers.size());
  std::vector<Draft> drafts;
  for (int ranks = 1; ranks <= std::ssize(devices); ++ranks) {
    for (const auto& [schedule, per_rank] : draft_kinds(request)) {
      const int stages = ranks * per_rank;
      if (stages > layers || (request.stages > 0 && stages != request.stages)) {
        continue;
      }
      drafts.emplace_back(profile, devices, request, schedule, ranks, per_rank);
    }
  }
  return drafts;
}

// What the slowest of the `most` fastest takes. REQUIRES: there are some.
Seconds slowest_of_the_fastest(std::vector<Seconds> steps, std::size_t most) {
  std::ranges::sort(steps);
  return steps[std::min(most, steps.size()) - 1];
}

// By rising number of devices. Moving cuts takes time, so only the drafts that
// are fastest without get it.
std::vector<Plan> improved_plans(const std::vector<Draft>& drafts) {
  constexpr std::size_t kMost = 6;
  std::vector<std::optional<Plan>> plans;
  std::vector<Seconds> steps;
  for (const Draft& draft : drafts) {
    plans.push_back(draft.best_plan(/*moves_cuts=*/false));
    if (plans.back()) {
      steps.push_back(plans.back()->step);
    }
  }
  std::vector<Plan> found;
  if (steps.empty()) {
    return found;
  }
  const Seconds slowest = slowest_of_the_fastest(std::move(steps), kMost);
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (plans[i] && plans[i]->step <= slowest) {
      plans[i] = drafts[i].best_plan(/*moves_cuts=*/true);
    }
    if (plans[i]) {
      found.push_back(*std::move(plans[i]));
    }
  }
  return found;
}

// For every number of devices the best plan, as far as it is among the fastest
// or uses most devices: searching for a schedule takes time.
std::vector<Plan> most_promising(const std::vector<Plan>& plans) {
  constexpr std::size_t kMost = 3;
  std::map<int, Plan> best;
  for (const Plan& plan : plans) {
    const auto [place, is_new] = best.try_emplace(rank_count(plan), plan);
    if (!is_new && plan.step < place->second.step) {
      place->second = plan;
    }
  }
  std::vector<Seconds> steps;
  steps.reserve(best.size());
  for (const auto& [ranks, plan] : best) {
    steps.push_back(plan.step);
  }
  const Seconds slowest = slowest_of_the_fastest(std::move(steps), kMost);
  const int most = best.rbegin()->first;
  std::erase_if(best, [&](const auto& entry) {
    return entry.second.step > slowest && entry.first != most;
  });
  std::vector<Plan> found;
  found.reserve(best.size());
  for (auto& [ranks, plan] : best) {
    found.push_back(std::move(plan));
  }
  return found;
}

// The most promising plans, with schedules searched for them. Where nobody
// asked for a number of stages, the layers of the one with most devices may
// also be scattered.
std::vector<Plan> searched(const std::vector<Plan>& plans,
                           const Profile& profile,
                           const std::vector<DeviceSpec>& devices,
                           const PlanRequest& request) {
  std::vector<Plan> found = most_promising(plans);
  for (Plan& plan : found) {
    plan.schedule = kAutoSchedule;
    predict(plan, schedule_of(plan, plan.microbatches));
  }
  if (request.stages == 0 && request.stages_per_device == 0) {
    Plan& largest = found.back();
    const int ranks = rank_count(largest);
    const std::vector<DeviceSpec> used(devices.begin(),
                                       devices.begin() + ranks);
    const PlanBasis basis(profile, request, ranks);
    if (auto other = scattered(basis, used, largest)) {
      largest = *std::move(other);
    }
  }
  return found;
}

// The plan of one pipeline on all of these devices.
Plan pipeline_plan(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanRequest& request) {
  const std::vector<Draft> drafts = drafts_for(profile, devices, request);
  if (drafts.empty()) {
    fail("no number of devices gives " + counted(request.stages, "stage") +
             " with the schedule '" + request.schedule + "'",
         "Ask for a multiple of its stages per device, or leave one of them "
         "to the planner.");
  }
  std::vector<Plan> plans = improved_plans(drafts);
  if (plans.empty()) {
    fail_no_fit(profile.model, drafts);
  }
  if (request.schedule == kAutoSchedule) {
    plans = searched(plans, profile, devices, request);
  }
  const Seconds least = std::ranges::min(plans, {}, &Plan::step).step;
  return *std::ranges::find_if(plans, [&](const Plan& plan) {
    return plan.step <= kWorthADevice * least;
  });
}

// The most that one rank has, in bytes.
Bytes most_parameters(const Plan& plan) {
  std::vector<Bytes> by_rank(rank_count(plan));
  const std::vector<Rank> placement = placement_of(plan);
  for (std::size_t i = 0; i < placement.size(); ++i) {
    by_rank[placement[i].value] += plan.stages[i].parameters;
  }
  return std::ranges::max(by_rank);
}

// The time to add up the gradients of all replicas: every rank sends and
// receives all but its own section, twice.
Seconds time_of_sums(const Plan& plan, const PlanRequest& request) {
  const double share =
      2.0 * (plan.replicas - 1) / static_cast<double>(plan.replicas);
  return {share * static_cast<double>(most_parameters(plan).value) /
          request.sum_bandwidth};
}

// The plan for so many copies of a pipeline.
Plan mirrored_plan(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanRequest& request,
                   int replicas) {
  const std::vector<DeviceSpec> first(
      devices.begin(), devices.begin() + std::ssize(devices) / replicas);
  PlanRequest part = request;
  part.batch = (request.batch + replicas - 1) / replicas;
  part.replicas = replicas;
  Plan plan = pipeline_plan(profile, first, part);
  plan.batch = request.batch;
  plan.replicas = replicas;
  plan.shard = replicas > 1 ? request.shard : Shard::none;
  plan.step += time_of_sums(plan, request);
  return plan;
}

MeshTried tried(const Plan& plan) {
  MeshTried mesh{.replicas = plan.replicas,
                 .devices = rank_count(plan),
                 .step = plan.step};
  for (const StagePlan& stage : plan.stages) {
    mesh.peak = std::max(mesh.peak, stage.peak);
  }
  return mesh;
}

// Numbers of replicas to compare.
std::vector<int> replicas_to_try(int devices, const PlanRequest& request) {
  if (request.replicas > 0) {
    return {request.replicas};
  }
  std::vector<int> counts;
  for (int count = 1; count <= devices; ++count) {
    if (devices % count == 0 && request.batch >= count) {
      counts.push_back(count);
    }
  }
  return counts;
}

}  // namespace

Shard shard_named(const std::string& name) {
  const auto* const known = std::ranges::find(kShardNames, name);
  if (known == kShardNames.end()) {
    std::string names;
    for (const std::string_view one : kShardNames) {
      names += (names.empty() ? "" : ", ") + std::string(one);
    }
    fail("there is nothing to shard called '" + name + "'",
         "Choose one of: " + names + ".");
  }
  return static_cast<Shard>(known - kShardNames.begin());
}

int microbatches_for(int devices, const PlanRequest& request) {
  if (request.microbatches > 0) {
    return request.microbatches;
  }
  const std::int64_t wanted = std::int64_t{kMicrobatchesPerDevice} * devices;
  return static_cast<int>(std::min(wanted, request.batch));
}

Plan make_plan(const Profile& profile,
               const std::vector<DeviceSpec>& devices,
               const PlanRequest& request) {
  check_input(profile, devices, request);
  std::optional<Plan> best;
  std::optional<Error> problem;
  std::vector<MeshTried> compared;
  const auto count = static_cast<int>(devices.size());
  for (const int replicas : replicas_to_try(count, request)) {
    try {
      Plan plan = mirrored_plan(profile, devices, request, replicas);
      plan.step = whole_picoseconds(plan.step);
      compared.push_back(tried(plan));
      if (!best || kWorthADevice * plan.step < best->step) {
        best = std::move(plan);
      }
    } catch (const Error& error) {
      problem = error;
      compared.push_back({.replicas = replicas, .devices = count / replicas});
    }
  }
  if (!best) {
    throw Error(*problem);
  }
  if (compared.size() > 1) {
    best->compared = std::move(compared);
  }
  return *best;
}

}  // namespace cleave
