#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "cleave/comm/devices.h"

// For the profiler only.
namespace cleave {

// Threads that measure at the same time, one per device, and now and then all
// go on to the next device: what they then touch is in another one's caches.
// Thread-safe.
class Rotation {
 public:
  // The devices must outlive it.
  explicit Rotation(const Devices& devices);

 private:
  friend class Seat;

  bool meet(bool agrees);
  void leave();

  const Devices& devices_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::int64_t taking_part_;
  std::int64_t here_ = 0;  // of those, wait for the others
  std::int64_t meetings_ = 0;
  bool agree_ = true;   // those who are here
  bool agreed_ = true;  // all, at the last meeting
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

 private:
  Rotation& rotation_;
  std::size_t device_;
};

}  // namespace cleave
