#include "cleave/device/device.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <torch/types.h>

#include <set>
#include <thread>

#include "cleave/error.h"

namespace cleave {
namespace {

TEST(Devices, they_divide_the_cores_among_them) {
  const size_t cores = this_machine().cores.size();
  const Devices all = local_devices("cpu:1");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].cores.size(), cores);
  EXPECT_EQ(all[0].threads, static_cast<int>(cores));

  std::set<int> used;
  const Devices each = local_devices("cpu:" + std::to_string(cores));
  for (const Device& device : each) {
    EXPECT_EQ(device.threads, 1);
    used.insert(device.cores.begin(), device.cores.end());
  }
  EXPECT_EQ(used.size(), cores);
}

TEST(Devices, more_devices_than_cores_share) {
  const size_t cores = this_machine().cores.size();
  const Devices devices = local_devices("cpu:" + std::to_string(3 * cores));
  EXPECT_EQ(devices.size(), 3 * cores);
  EXPECT_EQ(devices[0].cores, devices[cores].cores);
  EXPECT_EQ(devices.back().name, "cpu:" + std::to_string(3 * cores - 1));
}

TEST(Devices, options_hold_for_every_device) {
  const Devices devices =
      local_devices("cpu:2", {.memory = Bytes{77}, .threads = 3, .pin = false});
  for (const Device& device : devices) {
    EXPECT_EQ(device.memory, Bytes{77});
    EXPECT_EQ(device.threads, 3);
    EXPECT_TRUE(device.cores.empty());
  }
}

TEST(Devices, other_words_are_refused) {
  for (const char* use :
       {"", "cpu", "cpu:", "cpu:0", "cpu:-1", "cpu:2x", "gpu:1", "cpu:99999"}) {
    EXPECT_THROW(local_devices(use), Error) << use;
  }
}

TEST(Devices, a_thread_that_settles_stays_on_the_device_s_cores) {
  const Devices devices = local_devices("cpu:1", {.threads = 1});
  Device one = devices[0];
  one.cores.resize(1);
  cpu_set_t set;
  CPU_ZERO(&set);
  int threads = 0;
  std::thread([&] {
    bind_to(one);
    sched_getaffinity(0, sizeof(set), &set);
    threads = at::get_num_threads();
  }).join();
  EXPECT_EQ(CPU_COUNT(&set), 1);
  EXPECT_TRUE(CPU_ISSET(one.cores[0], &set));
  EXPECT_EQ(threads, 1);
}

TEST(Devices, a_thread_can_stay_on_some_cores_for_a_while) {
  std::thread([] {
    const std::vector<int> before = this_machine().cores;
    {
      const PinnedScope stays({before.back()});
      EXPECT_EQ(this_machine().cores, std::vector{before.back()});
      const PinnedScope anywhere({});
      EXPECT_EQ(this_machine().cores, std::vector{before.back()});
    }
    EXPECT_EQ(this_machine().cores, before);
  }).join();
}

TEST(Devices, leave_cores_to_others_or_not) {
  const int cores = static_cast<int>(this_machine().cores.size());
  const std::string all = "cpu:" + std::to_string(cores);
  EXPECT_TRUE(take_all_cores(local_devices(all)));
  EXPECT_TRUE(take_all_cores(local_devices("cpu:1")));
  EXPECT_FALSE(take_all_cores(local_devices(all, {.pin = false})));
  if (cores > 1) {
    EXPECT_FALSE(take_all_cores(local_devices("cpu:1", {.threads = 1})));
  }
}

TEST(Devices, a_device_s_threads_are_not_changed_by_what_others_set) {
  Device one = local_devices("cpu:1")[0];
  one.threads = 1;
  int threads = 0;
  std::thread([&] {
    bind_to(one);
    std::thread([] { at::set_num_threads(2); }).join();
    threads = at::get_num_threads();
  }).join();
  EXPECT_EQ(threads, 1);
}

TEST(Devices, a_thread_can_be_kept_to_itself_for_a_while) {
  at::set_num_threads(2);
  {
    const SingleThreadScope alone;
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 2);
}

TEST(Devices, the_machine_is_described) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_FALSE(machine.cores.empty());
  EXPECT_GT(machine.memory, Bytes{1 << 20});
  EXPECT_EQ(machine.libtorch.substr(0, 2), "2.");
}

}  // namespace
}  // namespace cleave
