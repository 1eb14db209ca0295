#pragma once

#include <chrono>

#include "cleave/units.h"

namespace cleave {

// Adds the time it lives to `total`.
class BusyTimer {
 public:
  explicit BusyTimer(Seconds& total) : total_(total) {}
  ~BusyTimer() {
    const std::chrono::duration<double> spent = Clock::now() - start_;
    total_ += Seconds{spent.count()};
  }
  BusyTimer(const BusyTimer&) = delete;
  BusyTimer& operator=(const BusyTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  Seconds& total_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace cleave
