#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "cleave/comm/spin_wait.h"
#include "cleave/device/device.h"
#include "cleave/units.h"

// For the profiler only.
namespace cleave {

// Threads that measure at the same time, one per device, and now and then all
// go on to the next device: what they then touch is in another one's caches.
// Thread-safe.
class Rotation {
 public:
  // How long all wait for one: layers of one round may take long where devices
  // share cores.
  static constexpr Seconds kPatience{600};

  // The devices must outlive it.
  explicit Rotation(const Devices& devices);

 private:
  friend class Seat;

  bool meet(bool agrees);
  bool note_enough(bool is_new);
  void leave();
  [[noreturn]] static void fail_timed_out();

  const Devices& devices_;
  SpinWait spin_wait_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::int64_t taking_part_;
  std::int64_t here_ = 0;                   // of those, wait for the others
  std::atomic<std::int64_t> meetings_ = 0;  // also looked at without the lock
  std::int64_t enough_ = 0;  // of those who take part, since the last meeting
  bool agree_ = true;        // those who are here
  bool agreed_ = true;       // all, at the last meeting
};

// The seat of one of those threads. Whoever gives it up no longer takes part,
// so that nobody waits for a thread that failed. Not thread-safe.
class Seat {
 public:
  // Settles the calling thread on that device.
  Seat(Rotation& rotation, int device);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // Whether all think so. All have to ask. Throws Error if one does not.
  bool all(bool agrees);

  // Goes to the next device when all do.
  void change();

  // Says that this thread has measured enough since all were asked last, and
  // whether all have. Waits for nobody: who goes on until then keeps the others
  // as busy as they will be in training. Throws Error where that takes too
  // long.
  bool have_all_enough();

 private:
  Rotation& rotation_;
  std::size_t device_;
  std::optional<Seconds> enough_since_;
};

}  // namespace cleave
