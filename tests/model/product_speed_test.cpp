#include "cleave/model/kernels/product_speed.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

TEST(ProductSpeed, warns_of_bf16_where_it_is_slower) {
  EXPECT_EQ(bf16_warning({.fp32 = 90e9, .bf16 = 180e9}), "");
  EXPECT_EQ(bf16_warning({.fp32 = 90e9, .bf16 = 30e9}),
            "bf16 is slower than fp32 on this processor (30 against 90 "
            "GFLOP/s): train.precision = \"fp32\" is faster.");
}

// Also where tiles are broken: a bf16 product would kill the process.
TEST(ProductSpeed, is_measured_in_both_precisions) {
  const Devices devices = local_devices("cpu:1", {.threads = 1});
  const ProductSpeed speed = measure_products(devices.front());
  EXPECT_GT(speed.fp32, 0);
  EXPECT_GT(speed.bf16, 0);
}

}  // namespace
}  // namespace cleave
