#include "cleave/model/loss.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/error.h"

namespace cleave {
namespace {

TEST(Loss, parts_of_any_size_add_up_to_the_loss_of_the_batch) {
  torch::manual_seed(1);
  const at::Tensor scores = torch::randn({10, 5}, torch::kDouble);
  const at::Tensor targets = torch::randint(5, {10});
  const double whole =
      torch::nn::functional::cross_entropy(scores, targets).item<double>();
  double sum = 0;
  std::int64_t count = 0;
  for (const auto& [start, size] : {std::pair{0, 3}, {3, 6}, {9, 1}}) {
    sum +=
        cross_entropy
            .sum(scores.narrow(0, start, size), targets.narrow(0, start, size))
            .item<double>();
    count += cross_entropy.count(targets.narrow(0, start, size));
  }
  EXPECT_NEAR(sum / static_cast<double>(count), whole, 1e-12);
}

TEST(Loss, sequences_count_every_token_that_is_not_masked) {
  const at::Tensor scores = torch::zeros({2, 3, 4});
  at::Tensor targets = torch::ones({2, 3}, torch::kLong);
  targets[1][2] = -100;
  EXPECT_EQ(cross_entropy.count(targets), 5);
  EXPECT_NEAR(cross_entropy.sum(scores, targets).item<double>(),
              5 * std::log(4.0),
              1e-5);
}

TEST(Loss, squared_errors_add_up) {
  const at::Tensor targets = torch::zeros({2, 3});
  EXPECT_EQ(mean_squared_error.count(targets), 6);
  EXPECT_EQ(
      mean_squared_error.sum(torch::ones({2, 3}) * 2, targets).item<double>(),
      24);
  EXPECT_THROW(mean_squared_error.sum(torch::ones({2, 1}), targets), Error);
}

TEST(Loss, losses_are_found_by_name) {
  EXPECT_EQ(loss_named("mse").name, "mse");
  EXPECT_EQ(loss_named("cross_entropy").name, "cross_entropy");
  EXPECT_THROW(loss_named("hinge"), Error);
}

}  // namespace
}  // namespace cleave
