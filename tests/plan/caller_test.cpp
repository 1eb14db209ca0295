#include "cleave/plan/measure/caller.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace cleave {
namespace {

Batch samples(std::int64_t count) {
  return {torch::zeros({count, 100}), torch::zeros({count}, torch::kInt64)};
}

TEST(Caller, takes_time_where_devices_have_all_cores) {
  const Devices all = local_devices("cpu:1");
  EXPECT_GT(time_of_caller(samples(64), 64, all), Seconds{});
  // A batch of more samples than there are to measure with.
  EXPECT_GT(time_of_caller(samples(3), 64, all), Seconds{});
}

TEST(Caller, takes_none_where_they_leave_it_a_core) {
  const Devices anywhere = local_devices("cpu:1", {.pin = false});
  EXPECT_EQ(time_of_caller(samples(64), 64, anywhere), Seconds{});
}

}  // namespace
}  // namespace cleave
