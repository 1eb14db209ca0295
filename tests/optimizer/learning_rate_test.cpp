#include "cleave/optimizer/learning_rate.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

TEST(LearningRate, a_constant_rate_is_constant) {
  const LearningRate rate{.peak = 0.5};
  EXPECT_EQ(rate.at(1), 0.5);
  EXPECT_EQ(rate.at(1000), 0.5);
}

TEST(LearningRate, warm_up_rises_linearly_to_the_peak) {
  const LearningRate rate{.peak = 1, .warmup = 4};
  EXPECT_EQ(rate.at(1), 0.25);
  EXPECT_EQ(rate.at(3), 0.75);
  EXPECT_EQ(rate.at(4), 1);
  EXPECT_EQ(rate.at(5), 1);
}

TEST(LearningRate, a_cosine_falls_from_peak_to_floor) {
  const LearningRate rate{.peak = 1,
                          .shape = LearningRate::Shape::cosine,
                          .warmup = 10,
                          .steps = 110,
                          .floor = 0.1};
  EXPECT_EQ(rate.at(10), 1);
  EXPECT_NEAR(rate.at(60), 0.55, 1e-12);
  EXPECT_NEAR(rate.at(110), 0.1, 1e-12);
  EXPECT_NEAR(rate.at(500), 0.1, 1e-12);
}

}  // namespace
}  // namespace cleave
