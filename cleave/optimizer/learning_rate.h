#pragma once

#include <cstdint>
#include <functional>

namespace cleave {

// The rate of every step; steps count from 1. Several threads may call it at
// the same time.
using LearningRate = std::function<double(std::int64_t step)>;

// With a warm-up, the rate first rises linearly for so many steps.
LearningRate constant_rate(double rate, std::int64_t warmup = 0);

struct WarmupCosine {
  double peak = 1e-3;
  std::int64_t warmup = 0;  // steps
  std::int64_t total = 0;   // steps, with those of the warm-up
  double floor = 0;
};

// Rises linearly to the peak during the warm-up, then falls along a cosine to
// the floor at step `total`, and stays there.
LearningRate warmup_cosine(const WarmupCosine& options);

}  // namespace cleave
