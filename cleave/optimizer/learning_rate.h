#pragma once

#include <cstdint>

namespace cleave {

// The rate of every step: constant, or rising linearly for `warmup` steps and
// then falling along a cosine to `floor` at step `steps`.
struct LearningRate {
  enum class Shape { constant, cosine };

  double peak = 1e-3;
  Shape shape = Shape::constant;
  std::int64_t warmup = 0;  // steps; also before a constant rate
  std::int64_t steps = 0;   // of the whole run; only cosine needs it
  double floor = 0;

  // REQUIRES: step counts from 1.
  double at(std::int64_t step) const;
};

}  // namespace cleave
