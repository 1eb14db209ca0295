#include "cleave/device/clock.h"

#include <chrono>

namespace cleave {

Seconds steady_now() {
  using Clock = std::chrono::steady_clock;
  return {
      std::chrono::duration<double>(Clock::now().time_since_epoch()).count()};
}

}  // namespace cleave
