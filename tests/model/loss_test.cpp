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
        cross_entropy()
            .sum(scores.narrow(0, start, size), targets.narrow(0, start, size))
            .item<double>();
    count += cross_entropy().count(targets.narrow(0, start, size));
  }
  EXPECT_NEAR(sum / static_cast<double>(count), whole, 1e-12);
}

TEST(Loss, sequences_count_every_token_that_is_not_masked) {
  const at::Tensor scores = torch::zeros({2, 3, 4});
  at::Tensor targets = torch::ones({2, 3}, torch::kLong);
  targets[1][2] = -100;
  EXPECT_EQ(cross_entropy().count(targets), 5);
  EXPECT_NEAR(cross_entropy().sum(scores, targets).item<double>(),
              5 * std::log(4.0),
              1e-5);
}

struct LossAndGradient {
  double loss = 0;
  at::Tensor gradient;  // of the tensor the scores were computed from
};

template <class CrossEntropy>
LossAndGradient judged(const at::Tensor& logits,
                       CrossEntropy cross_entropy_of) {
  const at::Tensor leaf = logits.clone().requires_grad_();
  const at::Tensor loss = cross_entropy_of(leaf * 2);
  loss.backward(torch::full_like(loss, 0.25));
  return {loss.item<double>(), leaf.grad()};
}

TEST(CrossEntropy, agrees_with_libtorch_in_value_and_gradient) {
  torch::manual_seed(2);
  for (const std::int64_t classes : {2, 10, 8191, 100'000}) {
    const at::Tensor logits = 5 * torch::randn({37, classes}, torch::kDouble);
    at::Tensor targets = torch::randint(classes, {37});
    targets[3] = -100;
    const LossAndGradient own = judged(logits, [&](at::Tensor scores) {
      return cross_entropy().sum(std::move(scores), targets);
    });
    const LossAndGradient other = judged(logits, [&](const at::Tensor& scores) {
      return at::cross_entropy_loss(scores, targets, {}, at::Reduction::Sum);
    });
    EXPECT_NEAR(own.loss, other.loss, 1e-9);
    EXPECT_TRUE(torch::allclose(own.gradient, other.gradient, 1e-9, 1e-12));
  }
}

TEST(CrossEntropy, scores_far_apart_stay_finite) {
  const at::Tensor logits = torch::tensor({{1000.0F, -1000.0F}});
  const LossAndGradient own = judged(logits, [&](at::Tensor scores) {
    return cross_entropy().sum(std::move(scores),
                               torch::ones({1}, torch::kLong));
  });
  EXPECT_EQ(own.loss, 4000);
  EXPECT_TRUE(torch::equal(own.gradient, torch::tensor({{0.5F, -0.5F}})));
}

TEST(CrossEntropy, only_scores_that_were_given_up_are_overwritten) {
  const at::Tensor leaf = torch::randn({8, 50}).requires_grad_();
  const at::Tensor targets = torch::randint(50, {8});
  const at::Tensor kept = leaf * 2;
  const at::Tensor before = kept.clone();
  const at::Tensor loss = cross_entropy().sum(kept, targets);
  EXPECT_TRUE(torch::equal(kept, before));

  at::Tensor given = leaf * 2;
  const at::Tensor view = given.detach();  // somebody looks at the memory
  const at::Tensor same = cross_entropy().sum(std::move(given), targets);
  EXPECT_TRUE(torch::equal(view, before));
  EXPECT_EQ(same.item<float>(), loss.item<float>());

  // Also where they are those of sequences.
  for (const bool sequences : {false, true}) {
    const std::vector<std::int64_t> sizes =
        sequences ? std::vector<std::int64_t>{2, 4} : std::vector{8L};
    at::Tensor owned =
        (sequences ? leaf.reshape({2, 4, 50}) : at::Tensor(leaf)) * 2;
    const float* memory = owned.data_ptr<float>();
    const at::Tensor third =
        cross_entropy().sum(std::move(owned), targets.reshape(sizes));
    EXPECT_EQ(third.item<float>(), loss.item<float>());
    EXPECT_NE(*memory, before[0][0].item<float>());
  }
}

TEST(CrossEntropy, a_second_backward_is_refused) {
  const at::Tensor leaf = torch::randn({8, 50}).requires_grad_();
  const at::Tensor loss =
      cross_entropy().sum(leaf * 2, torch::randint(50, {8}));
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), Error);
}

TEST(CrossEntropy, takes_a_target_for_every_row_of_scores) {
  const auto sum = [](at::IntArrayRef scores, at::IntArrayRef targets) {
    return sum_of(cross_entropy(),
                  {torch::zeros(scores).requires_grad_() * 1},
                  torch::zeros(targets, torch::kLong));
  };
  EXPECT_NO_THROW(sum({4, 3, 10}, {4, 3}));
  EXPECT_THROW(sum({4, 3, 10}, {4}), Error);
  EXPECT_THROW(sum({4, 10}, {4, 3}), Error);
  EXPECT_THROW(sum({4, 3, 10}, {3, 4}), Error);
  EXPECT_THROW(sum({}, {}), Error);
}

TEST(CrossEntropy, half_precision_scores_are_summed_in_single) {
  torch::manual_seed(4);
  const at::Tensor logits = torch::randn({16, 3000}).to(torch::kBFloat16);
  const at::Tensor targets = torch::randint(3000, {16});
  const LossAndGradient half = judged(logits, [&](at::Tensor scores) {
    return cross_entropy().sum(std::move(scores), targets);
  });
  const LossAndGradient full =
      judged(logits.to(torch::kFloat), [&](at::Tensor scores) {
        return cross_entropy().sum(std::move(scores), targets);
      });
  EXPECT_NEAR(half.loss, full.loss, 1e-5 * full.loss);
  EXPECT_TRUE(torch::allclose(
      half.gradient.to(torch::kFloat), full.gradient, 0.02, 1e-6));
  const torch::NoGradGuard no_grad;  // as when a model is judged
  EXPECT_NEAR(cross_entropy().sum(logits * 2, targets).item<double>(),
              full.loss,
              1e-5 * full.loss);
}

// The scores of a cut head, and the gradients of its parts, joined again.
LossAndGradient judged_in_parts(const at::Tensor& logits,
                                const at::Tensor& targets,
                                at::IntArrayRef sizes) {
  Values leaves = logits.split_with_sizes(sizes, -1);
  Values parts;
  for (at::Tensor& leaf : leaves) {
    leaf = leaf.clone().requires_grad_();
    parts.push_back(leaf * 2);
  }
  const at::Tensor loss = sum_of(cross_entropy(), std::move(parts), targets);
  loss.backward(torch::full_like(loss, 0.25));
  Values gradients;
  for (const at::Tensor& leaf : leaves) {
    gradients.push_back(leaf.grad());
  }
  return {loss.item<double>(), torch::cat(gradients, -1)};
}

TEST(CrossEntropy, parts_side_by_side_have_the_bits_of_all_in_one) {
  torch::manual_seed(5);
  at::Tensor targets = torch::randint(100, {3, 7});
  targets[1][2] = -100;
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const at::Tensor logits = (5 * torch::randn({3, 7, 100})).to(type);
    const LossAndGradient whole = judged(logits, [&](at::Tensor scores) {
      return cross_entropy().sum(std::move(scores), targets);
    });
    // Whole lanes, and parts that have to be joined first.
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{100},
          {16, 84},
          {32, 48, 16, 4},
          {50, 50},
          {33, 1, 66}}) {
      const LossAndGradient parted = judged_in_parts(logits, targets, sizes);
      EXPECT_EQ(parted.loss, whole.loss) << sizes;
      EXPECT_TRUE(torch::equal(parted.gradient, whole.gradient)) << sizes;
    }
  }
}

TEST(CrossEntropy, parts_that_were_given_up_are_overwritten) {
  const at::Tensor leaf = torch::randn({8, 48}).requires_grad_();
  Values parts;
  parts.push_back(leaf * 2);
  parts.push_back(leaf * 3);
  const float* first = parts[0].data_ptr<float>();
  const float* second = parts[1].data_ptr<float>();
  const float before = *first;
  const at::Tensor loss =
      sum_of(cross_entropy(), std::move(parts), torch::randint(96, {8}));
  EXPECT_NE(*first, before);
  EXPECT_GE(*second, 0);  // an exponential
}

TEST(Loss, that_takes_no_parts_is_given_them_joined) {
  const at::Tensor targets = torch::zeros({2, 3});
  EXPECT_EQ(sum_of(mean_squared_error(),
                   {torch::ones({2, 1}), 2 * torch::ones({2, 2})},
                   targets)
                .item<double>(),
            18);
}

TEST(Loss, squared_errors_add_up) {
  const at::Tensor targets = torch::zeros({2, 3});
  EXPECT_EQ(mean_squared_error().count(targets), 6);
  EXPECT_EQ(
      mean_squared_error().sum(torch::ones({2, 3}) * 2, targets).item<double>(),
      24);
  EXPECT_THROW(mean_squared_error().sum(torch::ones({2, 1}), targets), Error);
}

TEST(Loss, losses_are_found_by_name) {
  EXPECT_EQ(loss_named("mse").name, "mse");
  EXPECT_EQ(loss_named("cross_entropy").name, "cross_entropy");
  EXPECT_THROW(loss_named("hinge"), Error);
}

}  // namespace
}  // namespace cleave
