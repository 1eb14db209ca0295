#include "cleave/plan/draft.h"

#include <algorithm>
#include <utility>

#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/registry.h"

namespace cleave {
namespace {

// Of moving cuts: actions timed, in all.
constexpr int kMoveEffort = 100'000;

// The most microbatches of which every stage keeps something: from F to W, or
// to B in a stage that has no W.
std::vector<int> most_kept(const Schedule& schedule) {
  std::vector<Op> ends(schedule.stages, Op::backward);
  for (const Row& row : schedule.rows) {
    for (const Action& action : row) {
      if (action.op == Op::weight) {
        ends[action.stage.value] = Op::weight;
      }
    }
  }
  std::vector<int> now(schedule.stages, 0);
  std::vector<int> most(schedule.stages, 0);
  for (const Row& row : schedule.rows) {
    for (const auto& [op, microbatch, stage] : row) {
      int& kept = now[stage.value];
      kept += op == Op::forward ? 1 : op == ends[stage.value] ? -1 : 0;
      most[stage.value] = std::max(most[stage.value], kept);
    }
  }
  return most;
}

}  // namespace

Draft::Draft(const Profile& profile,
             const std::vector<DeviceSpec>& devices,
             const PlanRequest& request,
             std::string schedule,
             int ranks,
             int stages_per_rank)
    : basis_(profile, request, ranks), schedule_(std::move(schedule)) {
  placement_ =
      placement(schedule_, {ranks, stages_per_rank, basis_.microbatches});
  for (const Rank rank : placement_) {
    devices_.push_back(devices[rank.value]);
  }
  problem_ = cut_problem();
}

// Counted as memory: a parameter, its gradient and its optimizer states; what
// the microbatches in flight keep; and what a layer needs while it computes.
// Not counted: the input data and what libtorch needs for itself. What a stage
// is given, and further stages of its device, are left to fitting_plan().
CutProblem Draft::cut_problem() const {
  CutProblem problem;
  for (const LayerCost& layer : basis_.profile.layers) {
    problem.layers.push_back(
        {.time = layer.forward + layer.backward + layer.weight,
         .fixed =
             parameter_memory(layer.parameters, basis_.request) + layer.copies,
         .activations = layer.activations,
         .working = std::max({layer.working,
                              layer.backward_need,
                              layer.whole_need,
                              layer.weight_need})});
    // Both neighbours handle a message forward and one backward; one computes
    // with what comes from the other in F, the other in B.
    const auto foreign = [&](Seconds ForeignCost::*part) {
      return foreign_time(layer.crossing, part, basis_.profile);
    };
    problem.cuts.push_back(
        2 * message_time(layer, basis_.request) +
        (foreign(&ForeignCost::forward) + foreign(&ForeignCost::backward)) / 2);
  }
  problem.cuts.pop_back();  // nothing is cut behind the last layer
  const int ranks = std::ranges::max(placement_).value + 1;
  const std::vector<int> in_flight = most_kept(
      make_schedule(schedule_, {ranks, stages() / ranks, basis_.microbatches}));
  for (int stage = 0; stage < stages(); ++stage) {
    problem.devices.push_back({.speed = devices_[stage].speed,
                               .memory = devices_[stage].memory,
                               .in_flight = in_flight[stage]});
  }
  return problem;
}

int Draft::end_of(int stage, const Cut& cut) const {
  return stage + 1 < stages() ? cut[stage + 1]
                              : static_cast<int>(basis_.profile.layers.size());
}

Plan Draft::plan_for(const Cut& cut) const {
  Plan plan{.model = basis_.profile.model,
            .batch = basis_.request.batch,
            .microbatches = basis_.microbatches,
            .schedule = schedule_,
            .stages = {}};
  std::vector<double> speeds;
  for (int stage = 0; stage < stages(); ++stage) {
    plan.stages.push_back(
        stage_of(basis_, devices_[stage], cut[stage], end_of(stage, cut)));
    speeds.push_back(devices_[stage].speed);
  }
  add_foreign(basis_.profile, speeds, plan.stages);
  plan.step = Seconds{1};  // its times are real: costs_of() shall take them
  predict(plan, schedule_of(plan, basis_.microbatches));
  return plan;
}

std::optional<Plan> Draft::fitting_plan(const Cut& cut) const {
  Plan plan = plan_for(cut);
  return fits(plan) ? std::optional(std::move(plan)) : std::nullopt;
}

bool Draft::shares_devices() const {
  return stages() > std::ranges::max(placement_).value + 1;
}

Draft Draft::with_budget(Bytes budget) const {
  Draft draft = *this;
  for (DeviceSpec& device : draft.devices_) {
    device.memory = budget;
  }
  draft.problem_ = draft.cut_problem();
  return draft;
}

Bytes Draft::smallest_budget() const {
  constexpr int kRounds = 10;
  Bytes enough;
  const std::optional<Plan> free = with_budget({}).best_plan(false);
  for (const StagePlan& stage : free->stages) {
    enough = std::max(enough, stage.peak);
  }
  Bytes too_little;
  for (int round = 0; round < kRounds; ++round) {
    const Bytes middle{(too_little.value + enough.value) / 2};
    (with_budget(middle).best_plan(false) ? enough : too_little) = middle;
  }
  return enough;
}

std::optional<Plan> Draft::best_plan(bool moves_cuts) const {
  CutProblem start = problem_;
  if (shares_devices()) {
    for (CutDevice& device : start.devices) {
      device.memory = {};
    }
  }
  std::optional<Cut> cut = best_cut(start);
  if (!cut) {
    return std::nullopt;
  }
  std::optional<Plan> best = fitting_plan(*cut);
  int trials =
      moves_cuts || !best ? kMoveEffort / (stages() * basis_.microbatches) : 0;
  for (bool better = true; better && trials > 0;) {
    better = false;
    for (int stage = 1; stage < stages(); ++stage) {
      for (const int by : {-1, 1, -2, 2, -4, 4}) {
        Cut moved = *cut;
        moved[stage] += by;
        if (moved[stage] <= moved[stage - 1] ||
            moved[stage] >= end_of(stage, moved) || trials-- <= 0) {
          continue;
        }
        std::optional<Plan> plan = fitting_plan(moved);
        if (plan && (!best || plan->step < best->step)) {
          best = std::move(plan);
          cut = moved;
          better = true;
        }
      }
    }
  }
  return best;
}

}  // namespace cleave
