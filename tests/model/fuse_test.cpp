// A linear layer and the ReLU behind it, joined into one layer.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/model/model.h"
#include "cleave/model/network.h"

namespace cleave {
namespace {

using Names = std::vector<std::string>;

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
std::vector<at::Tensor> gradients_of(const Network& network,
                                     const at::Tensor& input,
                                     const at::Tensor& result) {
  result.backward(torch::arange(result.numel()).sin().view_as(result));
  std::vector<at::Tensor> gradients{input.grad()};
  for (const at::Tensor& parameter : network.parameters()) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

void expect_equal(const NamedTensors& found, const NamedTensors& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, wanted[i].first);
    EXPECT_TRUE(torch::equal(found[i].second, wanted[i].second))
        << found[i].first;
  }
}

// The first of the two is fused.
void expect_same_bits(Network& fused, Network& plain) {
  const at::Tensor input = some_rows();
  const at::Tensor result = fused.forward(input);
  EXPECT_TRUE(is_fused(result));
  const at::Tensor again = some_rows();
  const at::Tensor expected = plain.forward(again);
  EXPECT_FALSE(is_fused(expected));
  EXPECT_TRUE(torch::equal(result, expected));

  const auto found = gradients_of(fused, input, result);
  const auto wanted = gradients_of(plain, again, expected);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::equal(found[i], wanted[i])) << i;
  }
}

TEST(Fuse, keeps_names_and_bits_forward_and_backward) {
  const Model model = fuse(linear_and_relu());
  EXPECT_EQ(model.layer_names(), Names{"hidden"});
  const auto fused = model.build();
  const auto plain = linear_and_relu().build();
  expect_equal(fused->state(), plain->state());
  expect_same_bits(*fused, *plain);
}

TEST(Fuse, keeps_the_bits_of_whole_steps) {
  Model model("mlp", 2);
  model.add<torch::nn::Flatten>("flatten");
  model.add<torch::nn::Linear>("a", 5, 5);
  model.add<torch::nn::ReLU>("relu_a");
  model.add<torch::nn::Linear>("b", 5, 5).shares("weight", "a.weight");
  model.add<torch::nn::ReLU>("relu_b");
  model.add<torch::nn::Linear>("out", 5, 2);
  const auto plain = model.build();
  const auto fused = fuse(model).build();
  for (Network* network : {plain.get(), fused.get()}) {
    torch::optim::AdamW optimizer(network->parameters(), 0.01);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      network->forward(some_rows()).square().sum().backward();
      optimizer.step();
    }
  }
  expect_equal(fused->state(), plain->state());
}

TEST(Fuse, names_the_fused_layer_to_who_reads_the_relu) {
  struct SumImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
      return a + b;
    }
  };
  Model model("skip", 3);
  model.add<torch::nn::Linear>("first", 5, 5);
  model.add<torch::nn::ReLU>("relu").reads({"first:0"});
  model.add<torch::nn::Linear>("second", 5, 5);
  model.add<SumImpl>("sum").reads({"second", "relu"});
  model.add<SumImpl>("again").reads({"relu:0", "sum"});
  const Model fused = fuse(model);
  EXPECT_EQ(fused.layer_names(), (Names{"first", "second", "sum", "again"}));
  EXPECT_TRUE(torch::equal(fused.build()->forward(some_rows()),
                           model.build()->forward(some_rows())));
}

TEST(Fuse, joins_the_layers_of_an_existing_network) {
  torch::nn::Sequential network(
      torch::nn::Linear(5, 7), torch::nn::ReLU(), torch::nn::Linear(7, 2));
  const Model model = fuse(Model::from(network));
  EXPECT_EQ(model.layer_names(), (Names{"0", "2"}));
  EXPECT_TRUE(is_fused(model.build(0, 1)->forward(some_rows())));
  EXPECT_TRUE(torch::equal(model.build()->forward(some_rows()),
                           network->forward(some_rows())));
}

TEST(Fuse, leaves_a_value_that_another_layer_reads) {
  Model model("skip", 3);
  model.add<torch::nn::Linear>("hidden", 5, 5);
  model.add<torch::nn::ReLU>("relu");
  model.add<torch::nn::Bilinear>("both", 5, 5, 2).reads({"hidden", "relu"});
  EXPECT_EQ(fuse(model).layer_names(), model.layer_names());
}

TEST(Fuse, leaves_what_only_seems_to_be_linear) {
  struct DoubledImpl : torch::nn::LinearImpl {
    using LinearImpl::LinearImpl;
    at::Tensor forward(const at::Tensor& input) {
      return 2 * LinearImpl::forward(input);
    }
  };
  Model model("doubled", 3);
  model.add<DoubledImpl>("derived", 5, 7);
  model.add<torch::nn::ReLU>("relu");
  model.add("recipe", [] {
    return make_layer(std::make_shared<torch::nn::LinearImpl>(7, 5));
  });
  model.add<torch::nn::ReLU>("last");
  EXPECT_EQ(fuse(model).layer_names(), model.layer_names());
}

TEST(Fuse, runs_one_after_the_other_what_has_no_common_operation) {
  Model model("deep", 3);
  model.add<torch::nn::Linear>("hidden",
                               torch::nn::LinearOptions(5, 7).bias(false));
  model.add<torch::nn::ReLU>("relu");
  const auto without_bias = fuse(model).build();
  EXPECT_FALSE(is_fused(without_bias->forward(some_rows())));
  EXPECT_TRUE(torch::equal(without_bias->forward(some_rows()),
                           model.build()->forward(some_rows())));

  const auto fused = fuse(linear_and_relu()).build();
  const at::Tensor blocks = some_rows().view({2, 3, 5});
  const at::Tensor result = fused->forward(blocks);
  EXPECT_FALSE(is_fused(result));
  EXPECT_TRUE(torch::equal(result, linear_and_relu().build()->forward(blocks)));
}

TEST(Fuse, runs_one_after_the_other_where_nothing_is_learned) {
  const auto network = fuse(linear_and_relu()).build();
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
TEST(Fuse, notices_a_result_that_was_changed) {
  const auto network = fuse(linear_and_relu()).build();
  const at::Tensor result = network->forward(some_rows());
  {
    const torch::NoGradGuard no_grad;
    at::Tensor(result).add_(1);
  }
  EXPECT_THROW(result.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace cleave
