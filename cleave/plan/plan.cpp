#include "cleave/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cleave/error.h"
#include "cleave/plan/cut.h"
#include "cleave/plan/picoseconds.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/simulate.h"
#include "cleave/schedule/validate.h"

namespace cleave {
namespace {

// Fewer stages are kept unless more are faster by this factor: a prediction is
// not better than that, and every stage more is another device to pay for.
constexpr double kWorthAStage = 1.01;

constexpr int kMicrobatchesPerStage = 4;

// "3 layers", "1 layer"
std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// "between 1 and 3 stages", "1 stage"
std::string up_to(std::int64_t most, const std::string& noun) {
  return (most == 1 ? "" : "between 1 and ") + counted(most, noun);
}

void check_counts(int layers, int devices, const PlanRequest& request) {
  if (request.stages > layers) {
    fail("cannot cut " + counted(layers, "layer") + " into " +
             counted(request.stages, "stage"),
         "Ask for " + up_to(layers, "stage") + ".");
  }
  if (request.stages > devices) {
    fail("cannot put " + counted(request.stages, "stage") + " on " +
             counted(devices, "device"),
         "Ask for " + up_to(devices, "stage") + ", or name more devices.");
  }
  if (request.microbatches > request.batch) {
    fail("cannot make " + std::to_string(request.microbatches) +
             " microbatches of a batch of " + counted(request.batch, "sample"),
         "Give every microbatch at least one sample.");
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
  for (const LayerCost& layer : profile.layers) {
    if (!is_time(layer.forward) || !is_time(layer.backward) ||
        std::min({layer.parameters, layer.activations, layer.crossing}) <
            Bytes{0}) {
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
  if (request.batch < 1 || request.stages < 0 || request.microbatches < 0 ||
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
    layer.activations = grown(layer.activations);
    layer.crossing = grown(layer.crossing);
  }
  return result;
}

// One way to run the model that is not cut yet: everything but the cut is
// decided.
struct Draft {
  Profile profile;  // of one microbatch of the plan
  Schedule schedule;
  CutProblem problem;
};

Seconds message_time(const LayerCost& layer, const PlanRequest& request) {
  return request.message_latency +
         Seconds{static_cast<double>(layer.crossing.value) /
                 request.message_bandwidth};
}

// Counted as memory: a parameter, its gradient and its optimizer states; what
// the microbatches in flight keep for their backward; and, while one layer runs
// backward, the gradients it makes (about as much as it kept) and the one it
// was given (as much as crosses behind it). Not counted: the input data and
// what libtorch and the allocator need for themselves.
CutProblem cut_problem(const Draft& draft,
                       const std::vector<DeviceSpec>& devices,
                       const PlanRequest& request) {
  CutProblem problem;
  for (const LayerCost& layer : draft.profile.layers) {
    problem.layers.push_back(
        {.time = layer.forward + layer.backward,
         .fixed = (2 + request.state_copies) * layer.parameters,
         .activations = layer.activations,
         .working = layer.activations + layer.crossing});
    // Both neighbours handle a message forward and one backward.
    problem.cuts.push_back(2 * message_time(layer, request));
  }
  problem.cuts.pop_back();  // nothing is cut behind the last layer
  const std::vector<int> in_flight = peak_in_flight(draft.schedule);
  for (int stage = 0; stage < draft.schedule.stages; ++stage) {
    problem.devices.push_back({.speed = devices[stage].speed,
                               .memory = devices[stage].memory,
                               .in_flight = in_flight[stage]});
  }
  return problem;
}

Draft draft_for(int stages,
                const Profile& profile,
                const std::vector<DeviceSpec>& devices,
                const PlanRequest& request) {
  const int microbatches = microbatches_for(stages, request);
  Draft draft{
      .profile = rescaled(profile, request.batch, microbatches),
      .schedule = make_schedule(
          request.schedule, {.ranks = stages, .microbatches = microbatches}),
      .problem = {}};
  draft.problem = cut_problem(draft, devices, request);
  return draft;
}

StagePlan stage_plan(const Draft& draft,
                     const DeviceSpec& device,
                     int stage,
                     int first,
                     int end) {
  StagePlan result{.device = device.name, .layers = {}};
  for (int i = first; i < end; ++i) {
    const LayerCost& layer = draft.profile.layers[i];
    result.layers.push_back(layer.name);
    result.forward += layer.forward / device.speed;
    result.backward += layer.backward / device.speed;
    result.parameters += layer.parameters;
  }
  result.forward = whole_picoseconds(result.forward);
  result.backward = whole_picoseconds(result.backward);
  result.peak = stage_memory(draft.problem, stage, first, end);
  return result;
}

// Fills in the step time and the bubble. Not counted: the optimizer's step.
void predict(Plan& plan,
             const Draft& draft,
             const std::vector<int>& first,
             const PlanRequest& request) {
  ScheduleCosts costs;
  for (std::size_t stage = 0; stage < first.size(); ++stage) {
    costs.stages.push_back(
        {plan.stages[stage].forward, plan.stages[stage].backward});
    if (stage > 0) {
      const LayerCost& before = draft.profile.layers[first[stage] - 1];
      costs.forward_message.push_back(message_time(before, request));
    }
  }
  costs.backward_message = costs.forward_message;  // a gradient for every value
  const Timeline timeline = simulate(draft.schedule, costs);
  plan.step = whole_picoseconds(timeline.length);
  plan.bubble = timeline.bubble();
}

// The best plan of the draft; nothing when no cut of it fits.
std::optional<Plan> cut_and_predict(const Draft& draft,
                                    const std::vector<DeviceSpec>& devices,
                                    const PlanRequest& request) {
  const std::optional<std::vector<int>> first = best_cut(draft.problem);
  if (!first) {
    return std::nullopt;
  }
  Plan plan{.model = draft.profile.model,
            .batch = request.batch,
            .microbatches = draft.schedule.microbatches,
            .schedule = request.schedule,
            .stages = {}};
  const int stages = draft.schedule.stages;
  for (int stage = 0; stage < stages; ++stage) {
    const int end = stage + 1 < stages
                        ? (*first)[stage + 1]
                        : static_cast<int>(draft.profile.layers.size());
    plan.stages.push_back(
        stage_plan(draft, devices[stage], stage, (*first)[stage], end));
  }
  predict(plan, draft, *first, request);
  return plan;
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

[[noreturn]] void fail_no_fit(const std::vector<Draft>& drafts) {
  Bytes smallest;
  int stages = 0;
  for (const Draft& draft : drafts) {
    const Bytes budget = smallest_budget(draft.problem);
    if (stages == 0 || budget < smallest) {
      smallest = budget;
      stages = draft.schedule.stages;
    }
  }
  const std::string count = counted(stages, "stage");
  fail("no cut of '" + drafts.front().profile.model + "' into " +
           (drafts.size() == 1
                ? count
                : "1 to " + std::to_string(drafts.size()) + " stages") +
           " fits a memory of " + budget_text(drafts.back().problem),
       "Give every device at least " + at_least(smallest) +
           (drafts.size() == 1 ? "" : ", which is enough for " + count) +
           "; or take more devices, a smaller batch or more microbatches.");
}

}  // namespace

int microbatches_for(int stages, const PlanRequest& request) {
  if (request.microbatches > 0) {
    return request.microbatches;
  }
  const std::int64_t wanted = std::int64_t{kMicrobatchesPerStage} * stages;
  return static_cast<int>(std::min(wanted, request.batch));
}

Plan make_plan(const Profile& profile,
               const std::vector<DeviceSpec>& devices,
               const PlanRequest& request) {
  check_input(profile, devices, request);
  const int most =
      static_cast<int>(std::min(profile.layers.size(), devices.size()));
  const int from = request.stages > 0 ? request.stages : 1;
  const int to = request.stages > 0 ? request.stages : most;
  std::vector<Draft> drafts;
  std::vector<Plan> plans;  // by rising number of stages
  for (int stages = from; stages <= to; ++stages) {
    drafts.push_back(draft_for(stages, profile, devices, request));
    if (auto plan = cut_and_predict(drafts.back(), devices, request)) {
      plans.push_back(*std::move(plan));
    }
  }
  if (plans.empty()) {
    fail_no_fit(drafts);
  }
  const Seconds least = std::ranges::min(plans, {}, &Plan::step).step;
  return *std::ranges::find_if(plans, [&](const Plan& plan) {
    return plan.step <= kWorthAStage * least;
  });
}

}  // namespace cleave
