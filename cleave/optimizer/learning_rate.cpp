#include "cleave/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cleave {
namespace {

double rising(double peak, std::int64_t warmup, std::int64_t step) {
  return peak * static_cast<double>(step) / static_cast<double>(warmup);
}

}  // namespace

LearningRate constant_rate(double rate, std::int64_t warmup) {
  return [=](std::int64_t step) {
    return step < warmup ? rising(rate, warmup, step) : rate;
  };
}

LearningRate warmup_cosine(const WarmupCosine& options) {
  return [options](std::int64_t step) {
    const auto& [peak, warmup, total, floor] = options;
    if (step < warmup) {
      return rising(peak, warmup, step);
    }
    const auto length =
        static_cast<double>(std::max<std::int64_t>(total - warmup, 1));
    const double done =
        std::min(static_cast<double>(step - warmup) / length, 1.0);
    return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
  };
}

}  // namespace cleave
