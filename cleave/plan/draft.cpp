#include "cleave/plan/draft.h"

#include <algorithm>
#include <utility>

#include "cleave/plan/picoseconds.h"
#include "cleave/plan/predict.h"
#include "cleave/schedule/memory.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/search/period_timer.h"

namespace cleave {
namespace {

// Of moving cuts: actions timed, in all.
constexpr int kMoveEffort = 100'000;

// How often a schedule is searched again in less memory, where messages in
// flight need what the search does not count.
constexpr int kSearches = 3;

}  // namespace

Draft::Draft(ScaledRequest scaled,
             const std::vector<DeviceSpec>& devices,
             Schedule passes)
    : scaled_(std::move(scaled)),
      devices_(devices),
      passes_(std::move(passes)) {
  const Order order(passes_);
  for (StageId stage; stage.value < passes_.stages(); ++stage.value) {
    placement_.push_back(order.owner(stage).value());
  }
  problem_ = cut_problem();
}

// Counted as memory: a parameter, its gradient and its optimizer states; what
// the microbatches in flight keep; and what a layer needs while it computes.
// Not counted: the input data and what libtorch needs for itself. What a stage
// is given, and further stages of its device, are left to fitting_at().
CutProblem Draft::cut_problem() const {
  CutProblem problem;
  for (const LayerCost& layer : scaled_.profile.layers) {
    problem.layers.push_back(
        {.time = layer.forward + layer.backward + layer.weight,
         .fixed =
             parameter_memory(layer.parameters, scaled_.task) + layer.copies,
         .activations = layer.activations,
         .working = std::max({layer.working,
                              layer.backward_need,
                              layer.whole_need,
                              layer.weight_need})});
    // Both neighbours handle a message forward and one backward.
    problem.cuts.push_back(2 * message_time(layer, scaled_.task));
  }
  problem.cuts.pop_back();  // nothing is cut behind the last layer
  const std::vector<int> in_flight = most_kept(passes_);
  for (int stage = 0; stage < stages(); ++stage) {
    const DeviceSpec& device = devices_[placement_[stage].value];
    problem.devices.push_back({.speed = device.speed,
                               .memory = device.memory,
                               .in_flight = in_flight[stage]});
  }
  return problem;
}

CutDraft Draft::cut_at(std::vector<int> first_layers) const {
  CutDraft cut{.first_layers = std::move(first_layers)};
  for (int stage = 0; stage < stages(); ++stage) {
    cut.stages.push_back(stage_cost(scaled_,
                                    devices_[placement_[stage].value],
                                    cut.first_layers[stage],
                                    cut.first_layers[stage + 1]));
  }
  PeriodTimer timer(placement_, passes_.microbatches, costs_of(cut.stages));
  cut.step =
      whole_picoseconds(timer.period(timer.numbered(passes_.rows)).value());
  return cut;
}

std::vector<Bytes> Draft::peaks(
    const Schedule& passes, const std::vector<StagePrediction>& stages) const {
  std::vector<Bytes> peaks = in_order_bounds(passes, stages);
  const std::vector<Bytes> fixed =
      fixed_bytes(placement_, stages, peaks.size());
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    peaks[rank] += fixed[rank];
  }
  return peaks;
}

bool Draft::fits(const std::vector<Bytes>& peaks) const {
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    const Bytes budget = devices_[rank].memory;
    if (budget > Bytes{} && peaks[rank] > budget) {
      return false;
    }
  }
  return true;
}

std::optional<CutDraft> Draft::fitting_at(
    const std::vector<int>& first_layers) const {
  CutDraft cut = cut_at(first_layers);
  const bool has_budget = std::ranges::any_of(
      devices_, [](const auto& device) { return device.memory > Bytes{}; });
  return !has_budget || fits(peaks(passes_, cut.stages))
             ? std::optional(std::move(cut))
             : std::nullopt;
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
  const CutDraft free = *with_budget({}).best_cut(false);
  Bytes enough = std::ranges::max(peaks(passes_, free.stages));
  Bytes too_little;
  for (int round = 0; round < kRounds; ++round) {
    const Bytes middle{(too_little.value + enough.value) / 2};
    if (with_budget(middle).best_cut(false)) {
      enough = middle;
    } else {
      too_little = middle;
    }
  }
  return enough;
}

std::optional<CutDraft> Draft::best_cut(bool moves_cuts) const {
  CutProblem start = problem_;
  if (stages() > ranks()) {
    for (CutDevice& device : start.devices) {
      device.memory = {};  // it has other stages too
    }
  }
  std::optional<std::vector<int>> cut = cleave::best_cut(start);
  if (!cut) {
    return std::nullopt;
  }
  cut->push_back(static_cast<int>(scaled_.profile.layers.size()));
  std::optional<CutDraft> best = fitting_at(*cut);
  if (!moves_cuts && best) {
    return best;
  }
  int trials = kMoveEffort / (stages() * passes_.microbatches);
  for (bool better = true; better && trials > 0;) {
    better = false;
    for (int stage = 1; stage < stages(); ++stage) {
      for (const int by : {-1, 1, -2, 2, -4, 4}) {
        std::vector<int> moved = *cut;
        moved[stage] += by;
        const bool has_layers =
            moved[stage] > moved[stage - 1] && moved[stage] < moved[stage + 1];
        if (!has_layers || trials <= 0) {
          continue;
        }
        --trials;
        std::optional<CutDraft> other = fitting_at(moved);
        if (other && (!best || other->step < best->step)) {
          best = std::move(other);
          cut = moved;
          better = true;
        }
      }
    }
  }
  return best;
}

SearchProblem Draft::search_problem(const CutDraft& cut) const {
  SearchProblem problem{.placement = placement_,
                        .microbatches = passes_.microbatches,
                        .costs = costs_of(cut.stages),
                        .memory = memory_of(cut.stages),
                        .limits = std::vector<Bytes>(ranks())};
  for (int rank = 0; rank < ranks(); ++rank) {
    if (devices_[rank].memory > Bytes{}) {
      problem.limits[rank] = devices_[rank].memory;
    }
  }
  for (int stage = 0; stage < stages(); ++stage) {
    const StagePrediction& cost = cut.stages[stage];
    Bytes& limit = problem.limits[placement_[stage].value];
    if (limit > Bytes{}) {
      limit = std::max(Bytes{1},
                       limit - cost.fixed - cost.memory.leaving -
                           cost.memory.returning - cost.memory.shared);
    }
  }
  return problem;
}

std::optional<Schedule> Draft::searched_passes(const CutDraft& cut) const {
  SearchProblem problem = search_problem(cut);
  for (int search = 0; search < kSearches; ++search) {
    std::optional<Schedule> found = search_schedule(problem);
    if (!found) {
      break;
    }
    found->graph = passes_.graph;
    found->synchronisation = passes_.synchronisation;
    const std::vector<Bytes> needed = peaks(*found, cut.stages);
    if (fits(needed)) {
      return found;
    }
    for (std::size_t rank = 0; rank < needed.size(); ++rank) {
      const Bytes over = needed[rank] - devices_[rank].memory;
      if (devices_[rank].memory > Bytes{} && over > Bytes{}) {
        problem.limits[rank] = std::max(Bytes{1}, problem.limits[rank] - over);
      }
    }
  }
  return std::nullopt;
}

}  // namespace cleave
