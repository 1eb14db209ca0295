#include "cleave/model/intercept/low_precision.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/model/families/families.h"
#include "cleave/model/intercept/weight_queue.h"
#include "cleave/model/network.h"

namespace cleave {
namespace {

at::Tensor low(const at::Tensor& tensor) {
  return tensor.to(at::kBFloat16);
}

TEST(LowCopies, are_kept_until_the_parameter_changes) {
  const torch::nn::Linear linear(3, 2);
  LowCopies copies;
  const at::Tensor first = copies.of(linear->weight);
  EXPECT_TRUE(first.is_same(copies.of(linear->weight)));
  EXPECT_EQ(copies.bytes().value, 3 * 2 * 2);
  {
    const torch::NoGradGuard no_grad;
    linear->weight.mul_(3);
  }
  EXPECT_TRUE(torch::equal(copies.of(linear->weight), low(linear->weight)));
  EXPECT_FALSE(torch::equal(first, copies.of(linear->weight)));
}

TEST(LowCopies, are_renewed_in_their_place) {
  const torch::nn::Linear linear(3, 2);
  LowCopies copies;
  const at::Tensor first = copies.of(linear->weight);
  {
    const torch::NoGradGuard no_grad;
    linear->weight.mul_(3);
  }
  copies.renew();
  EXPECT_TRUE(first.is_same(copies.of(linear->weight)));
  EXPECT_TRUE(torch::equal(first, low(linear->weight)));
}

Model two_linears() {
  Model model("two", 1);
  model.add<torch::nn::Linear>("a", 6, 8);
  model.add<torch::nn::LayerNorm>("norm", std::vector<std::int64_t>{8});
  model.add<torch::nn::Linear>("b", 8, 4);
  return model;
}

TEST(LowPrecision, results_are_bf16_and_gradients_have_their_parameters_type) {
  const auto network = two_linears().build();
  network->compute_in(Precision::bf16);
  const at::Tensor input = torch::randn({5, 6});
  const at::Tensor result = network->forward(input);
  EXPECT_EQ(result.scalar_type(), at::kBFloat16);
  result.sum().backward();
  for (const auto& [name, parameter] : network->trained_parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kFloat) << name;
    EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat) << name;
  }
}

TEST(LowPrecision, is_near_fp32) {
  const Model model = two_linears();
  const auto low_network = model.build();
  low_network->compute_in(Precision::bf16);
  const at::Tensor input = torch::randn({50, 6});
  const at::Tensor exact = model.build()->forward(input);
  const at::Tensor found = low_network->forward(input).to(at::kFloat);
  EXPECT_LT((found - exact).norm().item<double>(),
            0.02 * exact.norm().item<double>());
  EXPECT_FALSE(torch::equal(found, exact));
}

TEST(LowPrecision, leaves_nothing_behind_on_the_thread) {
  const auto network = two_linears().build();
  network->compute_in(Precision::bf16);
  network->forward(torch::randn({5, 6}));
  network->compute_in(Precision::fp32);
  EXPECT_EQ(network->forward(torch::randn({5, 6})).scalar_type(), at::kFloat);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  at::autocast::set_autocast_enabled(at::kCPU, true);  // by the user
  network->compute_in(Precision::bf16);
  network->forward(torch::randn({5, 6}));
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

// What the split operations do not know: products of other tensors, frozen
// weights, evaluation.
TEST(LowPrecision, holds_for_any_product) {
  struct Products : torch::nn::Module {
    Products()
        : weight(register_parameter("weight", torch::randn({6, 6}))),
          frozen(register_parameter("frozen", torch::randn({6, 6}), false)) {}
    at::Tensor forward(const at::Tensor& x) {
      return torch::linear(torch::mm(x, weight * 2), frozen);
    }
    at::Tensor weight;
    at::Tensor frozen;
  };
  Model model("products", 1);
  model.add<Products>("products");
  const auto network = model.build();
  network->compute_in(Precision::bf16);
  const at::Tensor result = network->forward(torch::randn({5, 6}));
  EXPECT_EQ(result.scalar_type(), at::kBFloat16);
  result.sum().backward();
  EXPECT_EQ(network->parameters()[0].grad().scalar_type(), at::kFloat);
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(network->forward(torch::randn({5, 6})).scalar_type(),
            at::kBFloat16);
}

TEST(LowPrecision, every_family_stays_in_bf16_from_layer_to_layer) {
  const FamilyOptions options{.input = {1, 8, 8},
                              .outputs = 4,
                              .width = 8,
                              .depth = 1,
                              .heads = 2,
                              .context = 6,
                              .vocabulary = 11};
  for (const char* family : {"mlp", "convnet", "resnet", "gpt"}) {
    const Model model = make_model(family, options);
    Values values{std::string(family) == "gpt" ? torch::randint(11, {2, 6})
                                               : torch::randn({2, 1, 8, 8})};
    for (int layer = 0; layer < model.size(); ++layer) {
      const auto network = model.build(layer, layer + 1);
      network->compute_in(Precision::bf16);
      const bool is_low = values[0].scalar_type() == at::kBFloat16;
      values = network->forward(values);
      for (const at::Tensor& value : values) {
        EXPECT_TRUE(!is_low || value.scalar_type() == at::kBFloat16)
            << family << " " << model.layer_names()[layer];
      }
    }
    EXPECT_EQ(values[0].scalar_type(), at::kBFloat16) << family;
  }
}

TEST(AccumulateGradient, adds_bf16_to_fp32_without_loss) {
  const at::Tensor parameter = torch::zeros({37}).requires_grad_();
  const at::Tensor small = low(torch::full({37}, 0.001));
  at::Tensor expected = torch::zeros({37});
  for (int i = 0; i < 1000; ++i) {
    accumulate_gradient(parameter, small);
    expected += small.to(at::kFloat);
  }
  EXPECT_TRUE(torch::equal(parameter.grad(), expected));
  EXPECT_NEAR(parameter.grad()[0].item<double>(), 1.0, 0.01);
}

}  // namespace
}  // namespace cleave
