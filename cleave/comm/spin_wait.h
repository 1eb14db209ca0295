#pragma once

#include <chrono>
#include <thread>

namespace cleave {

// How threads that have cores of their own wait for each other: they spin
// before they sleep. A core that sleeps takes tens of microseconds to wake, and
// is slow for some more.
class SpinWait {
 public:
  // Threads sleep at once.
  SpinWait() = default;

  // For so many threads. With fewer cores none spins: it would take the core of
  // a thread that computes.
  explicit SpinWait(int threads)
      : spins_(threads > 1 && static_cast<unsigned>(threads) <=
                                  std::thread::hardware_concurrency()) {}

  // Returns when `done` is true, or when the time for spinning is over. Yields
  // the core to other threads.
  template <class Done>
  void until(const Done& done) const {
    if (!spins_) {
      return;
    }
    const auto end = std::chrono::steady_clock::now() + kSpin;
    while (!done() && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  }

 private:
  static constexpr std::chrono::milliseconds kSpin{2};

  bool spins_ = false;
};

}  // namespace cleave
