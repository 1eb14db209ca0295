#include "cleave/plan/measure/rotation.h"

#include <chrono>
#include <utility>

#include "cleave/device/clock.h"
#include "cleave/error.h"

namespace cleave {

Rotation::Rotation(const Devices& devices)
    : devices_(devices),
      spin_wait_(static_cast<int>(devices.size())),
      taking_part_(std::ssize(devices)) {}

// Waits for all that take part.
bool Rotation::meet(bool agrees) {
  std::unique_lock lock(mutex_);
  agree_ = agree_ && agrees;
  ++here_;
  const std::int64_t number = meetings_;
  const auto all_are_here = [&] {
    if (meetings_ == number && here_ >= taking_part_) {
      ++meetings_;
      here_ = 0;
      enough_ = 0;
      agreed_ = std::exchange(agree_, true);
      changed_.notify_all();
    }
    return meetings_ > number;
  };
  if (!all_are_here()) {
    lock.unlock();
    spin_wait_.until([&] { return meetings_ > number; });
    lock.lock();
  }
  if (!changed_.wait_for(
          lock, std::chrono::duration<double>(kPatience.value), all_are_here)) {
    fail_timed_out();
  }
  return agreed_;
}

void Rotation::fail_timed_out() {
  fail("a device has not measured its layers for ten minutes",
       "See what else this machine is doing.");
}

bool Rotation::note_enough(bool is_new) {
  const std::lock_guard lock(mutex_);
  enough_ += is_new ? 1 : 0;
  return enough_ >= taking_part_;
}

void Rotation::leave() {
  const std::lock_guard lock(mutex_);
  --taking_part_;
  changed_.notify_all();
}

Seat::Seat(Rotation& rotation, int device)
    : rotation_(rotation), device_(device) {
  bind_to(rotation_.devices_[device_]);
}

Seat::~Seat() {
  rotation_.leave();
}

bool Seat::all(bool agrees) {
  enough_since_.reset();
  return rotation_.meet(agrees);
}

void Seat::change() {
  all(true);
  device_ = (device_ + 1) % rotation_.devices_.size();
  bind_to(rotation_.devices_[device_]);
}

bool Seat::have_all_enough() {
  const bool is_new = !enough_since_;
  enough_since_ = enough_since_.value_or(steady_now());
  if (steady_now() - *enough_since_ > Rotation::kPatience) {
    Rotation::fail_timed_out();
  }
  return rotation_.note_enough(is_new);
}

}  // namespace cleave
