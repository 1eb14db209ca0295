#include "cleave/plan/measure/rotation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace cleave {
namespace {

// Runs `work` for every device, on threads of their own.
void on_all(const Devices& devices,
            const std::function<void(Seat&, int)>& work) {
  Rotation rotation(devices);
  std::vector<std::jthread> threads;
  for (int device = 0; device < std::ssize(devices); ++device) {
    threads.emplace_back([&, device] {
      Seat seat(rotation, device);
      work(seat, device);
    });
  }
}

Devices three_devices() {
  return local_devices("cpu:3", {.threads = 1, .pin = false});
}

TEST(Rotation, nobody_goes_on_before_all_are_there) {
  std::atomic<int> here = 0;
  on_all(three_devices(), [&](Seat& seat, int /*device*/) {
    for (int round = 1; round <= 100; ++round) {
      ++here;
      seat.change();
      EXPECT_GE(here, 3 * round);
    }
  });
  EXPECT_EQ(here, 300);
}

TEST(Rotation, all_agree_or_none) {
  on_all(three_devices(), [](Seat& seat, int device) {
    EXPECT_TRUE(seat.all(true));
    EXPECT_FALSE(seat.all(device != 1));
    EXPECT_TRUE(seat.all(true));
  });
}

TEST(Rotation, nobody_has_enough_before_all_have) {
  std::atomic<int> with_enough = 0;
  on_all(three_devices(), [&](Seat& seat, int /*device*/) {
    for (int round = 1; round <= 20; ++round) {
      seat.all(true);
      ++with_enough;
      while (!seat.have_all_enough()) {
        std::this_thread::yield();
      }
      EXPECT_GE(with_enough, 3 * round);
    }
  });
}

TEST(Rotation, who_says_enough_twice_counts_once) {
  on_all(three_devices(), [](Seat& seat, int device) {
    seat.all(true);
    if (device == 0) {
      EXPECT_FALSE(seat.have_all_enough());
      EXPECT_FALSE(seat.have_all_enough());
      EXPECT_FALSE(seat.have_all_enough());
    }
    seat.all(true);
  });
}

TEST(Rotation, who_leaves_need_not_have_enough) {
  on_all(three_devices(), [](Seat& seat, int device) {
    seat.all(true);
    while (device != 1 && !seat.have_all_enough()) {
      std::this_thread::yield();
    }
  });
}

TEST(Rotation, who_leaves_holds_up_nobody) {
  on_all(three_devices(), [](Seat& seat, int device) {
    for (int round = 0; round < 10 * (device + 1); ++round) {
      seat.change();
    }
  });
}

}  // namespace
}  // namespace cleave
