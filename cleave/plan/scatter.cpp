#include "cleave/plan/scatter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/registry.h"

namespace cleave {
namespace {

// Layers that always stay together: light ones with the one before them.
struct Piece {
  int first = 0;
  int end = 0;
  Seconds time;
};

constexpr std::size_t kMostPieces = 64;
constexpr std::int64_t kScatterEffort =
    400'000;  // actions scheduled roughly, in all
constexpr int kMostMoves = 3000;
constexpr double kStartHeat = 0.02;  // a worse period by this share may pass

std::vector<Piece> pieces_of(const PlanBasis& basis, int devices) {
  std::vector<Piece> pieces;
  Seconds all;
  for (int i = 0; const LayerCost& layer : basis.profile.layers) {
    const Seconds time = layer.forward + layer.backward + layer.weight;
    pieces.push_back({i, i + 1, time});
    all += time;
    ++i;
  }
  const Seconds light = 0.02 / devices * all;
  const auto join = [&](std::size_t with_next) {
    pieces[with_next].end = pieces[with_next + 1].end;
    pieces[with_next].time += pieces[with_next + 1].time;
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(with_next) + 1);
  };
  for (std::size_t i = 1; i < pieces.size();) {
    pieces[i].time < light ? join(i - 1) : static_cast<void>(++i);
  }
  while (pieces.size() > 1 && pieces.front().time < light) {
    join(0);
  }
  while (pieces.size() > kMostPieces) {
    std::size_t least = 0;
    for (std::size_t i = 1; i + 1 < pieces.size(); ++i) {
      if (pieces[i].time + pieces[i + 1].time <
          pieces[least].time + pieces[least + 1].time) {
        least = i;
      }
    }
    join(least);
  }
  return pieces;
}

// One search: pieces on devices, moved about as in annealing.
class Scatter {
 public:
  Scatter(const PlanBasis& basis, const std::vector<DeviceSpec>& devices)
      : basis_(basis),
        devices_(devices),
        pieces_(pieces_of(basis, static_cast<int>(devices.size()))) {}

  // The device of every piece.
  using Assignment = std::vector<int>;

  bool can_scatter() const { return pieces_.size() > devices_.size(); }

  Assignment assignment_of(const Plan& plan) const {
    std::vector<int> of_layer;
    const std::vector<Rank> ranks = placement_of(plan);
    for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
      of_layer.insert(
          of_layer.end(), plan.stages[stage].layers.size(), ranks[stage].value);
    }
    Assignment result;
    for (const Piece& piece : pieces_) {
      result.push_back(of_layer[piece.first]);
    }
    return result;
  }

  Assignment improve(Assignment current) {
    const int moves = static_cast<int>(std::clamp<std::int64_t>(
        kScatterEffort /
            static_cast<std::int64_t>(pieces_.size() * basis_.microbatches),
        200,
        kMostMoves));
    double period = rough(current);
    Assignment best = current;
    double shortest = period;
    for (int move = 0; move < moves; ++move) {
      const Assignment other = neighbour(current);
      const double other_period = rough(other);
      const double heat = kStartHeat * (1 - move / static_cast<double>(moves));
      if (other_period < period * (1 + heat * share())) {
        current = other;
        period = other_period;
      }
      if (period < shortest) {
        shortest = period;
        best = current;
      }
    }
    return best;
  }

  Plan plan_for(const Assignment& assignment) const {
    Plan plan{.model = basis_.profile.model,
              .batch = basis_.request.batch,
              .microbatches = basis_.microbatches,
              .schedule = std::string(kAutoSchedule),
              .stages = {},
              .step = Seconds{1}};  // its times are real: costs_of() takes them
    std::vector<double> speeds;
    for (std::size_t i = 0; i < pieces_.size();) {
      std::size_t end = i + 1;
      while (end < pieces_.size() && assignment[end] == assignment[i]) {
        ++end;
      }
      const DeviceSpec& device = devices_[assignment[i]];
      plan.stages.push_back(
          stage_of(basis_, device, pieces_[i].first, pieces_[end - 1].end));
      speeds.push_back(device.speed);
      i = end;
    }
    add_foreign(basis_.profile, speeds, plan.stages);
    return plan;
  }

 private:
  double rough(const Assignment& assignment) const {
    for (int device = 0; device < std::ssize(devices_); ++device) {
      if (std::ranges::find(assignment, device) == assignment.end()) {
        return std::numeric_limits<double>::infinity();
      }
    }
    const std::optional<Seconds> period = rough_period(
        search_problem_of(plan_for(assignment), basis_.microbatches));
    return period ? period->value : std::numeric_limits<double>::infinity();
  }

  Assignment neighbour(Assignment assignment) {
    const auto any_piece = [&] { return random_() % assignment.size(); };
    const auto any_device = [&] {
      return static_cast<int>(random_() % devices_.size());
    };
    switch (random_() % 4) {
      case 0:
        assignment[any_piece()] = any_device();
        break;
      case 1:
        std::swap(assignment[any_piece()], assignment[any_piece()]);
        break;
      case 2: {
        const auto from = any_piece();
        assignment[any_piece()] = assignment[from];
        assignment[from] = any_device();
        break;
      }
      default: {
        const auto piece = random_() % (assignment.size() - 1);
        assignment[piece] = assignment[piece + 1];
        break;
      }
    }
    return assignment;
  }

  double share() {
    return static_cast<double>(random_()) /
           static_cast<double>(std::mt19937::max());
  }

  const PlanBasis& basis_;
  const std::vector<DeviceSpec>& devices_;
  std::vector<Piece> pieces_;
  std::mt19937 random_{1};  // always the same
};

}  // namespace

std::optional<Plan> scattered(const PlanBasis& basis,
                              const std::vector<DeviceSpec>& devices,
                              const Plan& start) {
  Scatter scatter(basis, devices);
  if (devices.size() < 2 || !scatter.can_scatter()) {
    return std::nullopt;
  }
  Plan plan = scatter.plan_for(scatter.improve(scatter.assignment_of(start)));
  predict(plan, schedule_of(plan, plan.microbatches));
  return fits(plan) ? std::optional(std::move(plan)) : std::nullopt;
}

}  // namespace cleave
