#include "cleave/optimizer/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cleave {
namespace {

struct Pair {
  std::vector<at::Tensor> ours;
  std::vector<at::Tensor> theirs;
};

Pair equal_parameters() {
  torch::manual_seed(1);
  Pair pair;
  for (const std::int64_t size : {1, 7, 33, 500}) {
    pair.ours.push_back(torch::randn({size}).requires_grad_());
    pair.theirs.push_back(pair.ours.back().detach().clone().requires_grad_());
  }
  return pair;
}

// Ten steps of ours beside ten of torch::optim's, on the same gradients.
void expect_close_to(torch::optim::Optimizer& reference,
                     Optimizer& optimizer,
                     Pair& pair,
                     double learning_rate) {
  for (int step = 0; step < 10; ++step) {
    for (size_t i = 0; i < pair.ours.size(); ++i) {
      pair.ours[i].mutable_grad() = torch::randn_like(pair.ours[i]);
      pair.theirs[i].mutable_grad() = pair.ours[i].grad().clone();
    }
    optimizer.step(learning_rate);
    reference.step();
  }
  for (size_t i = 0; i < pair.ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(pair.ours[i], pair.theirs[i], 1e-5, 1e-6));
  }
}

TEST(Optimizer, adamw_does_what_libtorch_s_adamw_does) {
  Pair pair = equal_parameters();
  torch::optim::AdamW reference(
      pair.theirs, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  const auto optimizer = make_optimizer(AdamW{.weight_decay = 0.1}, pair.ours);
  expect_close_to(reference, *optimizer, pair, 0.01);
}

// Whoever keeps copies of parameters sees it by that.
TEST(Optimizer, an_update_raises_the_version_of_what_it_changes) {
  for (const OptimizerKind& kind :
       {OptimizerKind(AdamW{}), OptimizerKind(Sgd{})}) {
    Pair pair = equal_parameters();
    const auto optimizer = make_optimizer(kind, pair.ours);
    pair.ours[0].mutable_grad() = torch::ones_like(pair.ours[0]);
    const auto changed = pair.ours[0]._version();
    const auto same = pair.ours[1]._version();
    optimizer->step(0.1);
    EXPECT_GT(pair.ours[0]._version(), changed);
    EXPECT_EQ(pair.ours[1]._version(), same);
  }
}

TEST(Optimizer, sgd_does_what_libtorch_s_sgd_does) {
  for (const double momentum : {0.0, 0.9}) {
    Pair pair = equal_parameters();
    torch::optim::SGD reference(
        pair.theirs,
        torch::optim::SGDOptions(0.1).momentum(momentum).weight_decay(0.01));
    const auto optimizer = make_optimizer(
        Sgd{.momentum = momentum, .weight_decay = 0.01}, pair.ours);
    expect_close_to(reference, *optimizer, pair, 0.1);
  }
}

TEST(Optimizer, a_parameter_without_gradient_is_left_alone) {
  for (const OptimizerKind& kind : std::vector<OptimizerKind>{AdamW{}, Sgd{}}) {
    at::Tensor moved = torch::ones({3}).requires_grad_();
    at::Tensor still = torch::ones({3}).requires_grad_();
    const auto optimizer = make_optimizer(kind, {moved, still});
    moved.mutable_grad() = torch::ones({3});
    optimizer->step(0.1);
    EXPECT_FALSE(torch::equal(moved, torch::ones({3})));
    EXPECT_TRUE(torch::equal(still, torch::ones({3})));
  }
}

TEST(Optimizer, types_may_be_mixed) {
  at::Tensor narrow = torch::ones({3}).requires_grad_();
  at::Tensor wide = torch::ones({3}, torch::kDouble).requires_grad_();
  const auto optimizer = make_optimizer(AdamW{}, {narrow, wide});
  narrow.mutable_grad() = torch::ones_like(narrow);
  wide.mutable_grad() = torch::ones_like(wide);
  optimizer->step(0.1);
  EXPECT_LT(narrow[0].item<double>(), 1);
  EXPECT_LT(wide[0].item<double>(), 1);
}

TEST(Optimizer, the_planner_knows_what_each_keeps) {
  EXPECT_EQ(state_copies(AdamW{}), 2);
  EXPECT_EQ(state_copies(Sgd{}), 1);
  EXPECT_EQ(state_copies(Sgd{.momentum = 0}), 0);
}

}  // namespace
}  // namespace cleave
