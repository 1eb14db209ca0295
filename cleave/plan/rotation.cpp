#include "cleave/plan/rotation.h"

#include <chrono>
#include <utility>

#include "cleave/error.h"

namespace cleave {
namespace {

// Layers of one round may take long where devices share cores.
constexpr std::chrono::minutes kPatience{10};

}  // namespace

Rotation::Rotation(const Devices& devices)
    : devices_(devices), taking_part_(std::ssize(devices)) {}

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
      agreed_ = std::exchange(agree_, true);
      changed_.notify_all();
    }
    return meetings_ > number;
  };
  if (!changed_.wait_for(lock, kPatience, all_are_here)) {
    fail("a device has not measured its layers for ten minutes",
         "See what else this machine is doing.");
  }
  return agreed_;
}

void Rotation::leave() {
  const std::lock_guard lock(mutex_);
  --taking_part_;
  changed_.notify_all();
}

Seat::Seat(Rotation& rotation, int device)
    : rotation_(rotation), device_(device) {
  settle_on(rotation_.devices_[device_]);
}

Seat::~Seat() {
  rotation_.leave();
}

bool Seat::all(bool agrees) {
  return rotation_.meet(agrees);
}

void Seat::change() {
  rotation_.meet(true);
  device_ = (device_ + 1) % rotation_.devices_.size();
  settle_on(rotation_.devices_[device_]);
}

}  // namespace cleave
