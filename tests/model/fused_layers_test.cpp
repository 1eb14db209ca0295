// A linear layer and the ReLU behind it, in one operation.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/model/network.h"

namespace cleave {
namespace {

Model linear_and_relu() {
  Model model("two", 3);
  model.add<torch::nn::Linear>("hidden", 5, 7);
  model.add<torch::nn::ReLU>("relu");
  return model;
}

bool is_fused(const at::Tensor& result) {
  return result.grad_fn()->name() == "LinearBackward";
}

at::Tensor some_rows() {
  torch::manual_seed(4);
  return torch::randn({6, 5}).requires_grad_();
}

// The gradients of the input and of all parameters.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters,
                                     const at::Tensor& input,
                                     const at::Tensor& result) {
  result.backward(torch::arange(result.numel()).sin().view_as(result));
  std::vector<at::Tensor> gradients{input.grad()};
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

TEST(FusedLayers, have_the_bits_of_one_after_the_other) {
  const Model model = linear_and_relu();
  const auto whole = model.build();
  const at::Tensor input = some_rows();
  const at::Tensor result = whole->forward(input);
  EXPECT_TRUE(is_fused(result));

  const auto linear = model.build(0, 1);
  const auto relu = model.build(1, 2);
  const at::Tensor again = some_rows();
  const at::Tensor expected = relu->forward(linear->forward(again));
  EXPECT_FALSE(is_fused(expected));
  EXPECT_TRUE(linear->runs_as_one_with(*relu));
  EXPECT_TRUE(torch::equal(result, expected));

  const auto found = gradients_of(whole->parameters(), input, result);
  const auto wanted = gradients_of(linear->parameters(), again, expected);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::equal(found[i], wanted[i])) << i;
  }
}

TEST(FusedLayers, are_those_whose_values_nobody_else_reads) {
  Model model("skip", 3);
  model.add<torch::nn::Linear>("hidden", 5, 5);
  model.add<torch::nn::ReLU>("relu");
  model.add<torch::nn::Bilinear>("both", 5, 5, 2).reads({"hidden", "relu"});
  const auto network = model.build(0, 2);
  const Values results = network->forward(Values{some_rows()});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_FALSE(is_fused(results[1]));
  EXPECT_FALSE(model.build(0, 1)->runs_as_one_with(*model.build(1, 2)));
  EXPECT_TRUE(torch::equal(results[1], results[0].relu()));
}

TEST(FusedLayers, are_only_what_they_seem) {
  struct DoubledImpl : torch::nn::LinearImpl {
    using LinearImpl::LinearImpl;
    at::Tensor forward(const at::Tensor& input) {
      return 2 * LinearImpl::forward(input);
    }
  };
  Model model("doubled", 3);
  model.add<DoubledImpl>("hidden", 5, 7);
  model.add<torch::nn::ReLU>("relu");
  const at::Tensor result = model.build()->forward(some_rows());
  EXPECT_FALSE(is_fused(result));
}

TEST(FusedLayers, run_one_by_one_where_nothing_is_learned) {
  const auto network = linear_and_relu().build();
  const at::Tensor fused = network->forward(some_rows());
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(network->forward(some_rows()), fused));
  }
  network->parameters()[0].requires_grad_(false);
  const at::Tensor frozen = network->forward(some_rows());
  EXPECT_FALSE(is_fused(frozen));
  EXPECT_TRUE(torch::equal(frozen, fused));
}

// Its backward needs the result as it was.
TEST(FusedLayers, notice_a_result_that_was_changed) {
  const auto network = linear_and_relu().build();
  const at::Tensor result = network->forward(some_rows());
  {
    const torch::NoGradGuard no_grad;
    at::Tensor(result).add_(1);
  }
  EXPECT_THROW(result.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace cleave
