#include "cleave/optimizer/learning_rate.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

TEST(LearningRate, a_constant_rate_is_constant) {
  const LearningRate rate = constant_rate(0.5);
  EXPECT_EQ(rate(1), 0.5);
  EXPECT_EQ(rate(1000), 0.5);
}

TEST(LearningRate, warm_up_rises_linearly_to_the_peak) {
  for (const LearningRate& rate :
       {constant_rate(1, 4),
        warmup_cosine({.peak = 1, .warmup = 4, .total = 1'000'000'000})}) {
    EXPECT_EQ(rate(1), 0.25);
    EXPECT_EQ(rate(3), 0.75);
    EXPECT_EQ(rate(4), 1);
    EXPECT_EQ(rate(5), 1);
  }
}

TEST(LearningRate, a_cosine_falls_from_peak_to_floor) {
  const LearningRate rate =
      warmup_cosine({.peak = 1, .warmup = 10, .total = 110, .floor = 0.1});
  EXPECT_EQ(rate(10), 1);
  EXPECT_NEAR(rate(60), 0.55, 1e-12);
  EXPECT_NEAR(rate(110), 0.1, 1e-12);
  EXPECT_NEAR(rate(500), 0.1, 1e-12);
}

}  // namespace
}  // namespace cleave
