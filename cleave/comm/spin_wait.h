#pragma once

#include <chrono>
#include <thread>

namespace cleave {

// How threads that have cores of their own wait for each other: they look out
// for a moment before they sleep. A core that sleeps takes tens of microseconds
// to wake, and is slow for some more.
class SpinWait {
 public:
  // Nobody looks out: who waits sleeps at once.
  SpinWait() = default;

  // Of so many threads. Where there are fewer cores, one that looks out would
  // have the core of one that works: nobody does.
  explicit SpinWait(int threads)
      : looks_(threads > 1 && static_cast<unsigned>(threads) <=
                                  std::thread::hardware_concurrency()) {}

  // Returns when `seen`, or when the moment is over. Lets other threads of its
  // core go first.
  template <class Seen>
  void until(const Seen& seen) const {
    if (!looks_) {
      return;
    }
    const auto end = std::chrono::steady_clock::now() + kMoment;
    while (!seen() && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  }

 private:
  static constexpr std::chrono::milliseconds kMoment{2};

  bool looks_ = false;
};

}  // namespace cleave
