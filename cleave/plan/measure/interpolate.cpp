#include "cleave/plan/measure/interpolate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "cleave/error.h"

namespace cleave {
namespace {

// Goes a share of the way from one to the other: none at 0, all at 1.
struct Interpolation {
  double share;

  Seconds time(Seconds one, Seconds other) const {
    return std::max(Seconds{}, (1 - share) * one + share * other);
  }

  Bytes bytes(Bytes one, Bytes other) const {
    return Bytes{static_cast<std::int64_t>(
        std::ceil((1 - share) * static_cast<double>(one.value) +
                  share * static_cast<double>(other.value)))};
  }

  void apply(LayerCost& one, const LayerCost& other) const {
    for (const auto part : kLayerTimes) {
      one.*part = time(one.*part, other.*part);
    }
    const auto apply_to = [&](Bytes LayerCost::*part) {
      one.*part = bytes(one.*part, other.*part);
      if (part != &LayerCost::activations) {
        one.*part = std::max(Bytes{}, one.*part);
      }
    };
    std::ranges::for_each(kLayerSizes, apply_to);
    std::ranges::for_each(kLayerNeeds, apply_to);
  }
};

}  // namespace

std::int64_t size_of_microbatch(std::int64_t batch, int microbatches) {
  return (batch + microbatches - 1) / microbatches;
}

std::int64_t batch_of_replica(std::int64_t batch, int replicas) {
  const int all = std::max(1, replicas);
  return (batch + all - 1) / all;
}

Profile between(const Profile& small, const Profile& large, double samples) {
  const auto from = static_cast<double>(small.microbatch);
  const auto to = static_cast<double>(large.microbatch);
  const Interpolation line{(samples - from) / (to - from)};
  Profile result = small;
  result.microbatch = std::llround(samples);
  for (const auto time : kOverheadTimes) {
    result.overhead.*time =
        line.time(small.overhead.*time, large.overhead.*time);
  }
  for (size_t i = 0; i < result.layers.size(); ++i) {
    line.apply(result.layers[i], large.layers[i]);
  }
  return result;
}

Plan plan_with_one_of(const std::vector<int>& counts,
                      const Profile& small,
                      const Profile& large,
                      const std::vector<DeviceSpec>& devices,
                      PlanTask task) {
  const std::int64_t batch = batch_of_replica(task.batch, task.replicas);
  std::optional<Plan> best;
  std::optional<Error> problem;
  for (const int count : counts) {
    task.microbatches = count;
    const auto samples = static_cast<double>(size_of_microbatch(batch, count));
    const bool measured = small.microbatch == large.microbatch;
    try {
      Plan plan = make_plan(
          measured ? small : between(small, large, samples), devices, task);
      if (!best || plan.prediction->step < best->prediction->step) {
        best = std::move(plan);
      }
    } catch (const Error& error) {
      problem = error;
    }
  }
  if (!best) {
    throw Error(*problem);
  }
  return *std::move(best);
}

}  // namespace cleave
