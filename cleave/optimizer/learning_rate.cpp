#include "cleave/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cleave {

double LearningRate::at(std::int64_t step) const {
  if (step < warmup) {
    return peak * static_cast<double>(step) / static_cast<double>(warmup);
  }
  if (shape == Shape::constant) {
    return peak;
  }
  const auto length =
      static_cast<double>(std::max<std::int64_t>(steps - warmup, 1));
  const double done =
      std::min(static_cast<double>(step - warmup) / length, 1.0);
  return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

}  // namespace cleave
