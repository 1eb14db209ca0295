#include "cleave/model/model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/error.h"
#include "cleave/model/network.h"

namespace cleave {
namespace {

Model three_layers(std::uint64_t seed = 1) {
  Model model("three", seed);
  model.add<torch::nn::Linear>("in.hidden", 4, 8);
  model.add<torch::nn::ReLU>("relu");
  model.add<torch::nn::Linear>("out", 8, 2);
  return model;
}

std::map<std::string, at::Tensor> map_of(const NamedTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

template <class Call>
std::string problem_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.problem();
  }
  return "none";
}

TEST(Model, weights_depend_on_seed_and_name_and_not_on_the_cut) {
  const Model model = three_layers();
  const auto whole = map_of(model.build()->state());
  EXPECT_EQ(whole.size(), 4u);
  for (const auto& [first, last] : {std::pair{0, 1}, {1, 3}, {2, 3}}) {
    for (const auto& [name, tensor] : model.build(first, last)->state()) {
      EXPECT_TRUE(torch::equal(tensor, whole.at(name))) << name;
    }
  }
  const auto other = map_of(three_layers(2).build()->state());
  EXPECT_FALSE(torch::equal(other.at("out.weight"), whole.at("out.weight")));
}

TEST(Model, the_whole_network_is_an_ordinary_torch_module) {
  const auto network = three_layers().build();
  EXPECT_EQ(network->parameters().size(), 4u);
  EXPECT_TRUE(network->named_parameters().contains("in.hidden.weight"));
  torch::optim::SGD optimizer(network->parameters(), 0.1);
  const at::Tensor inputs = torch::randn({16, 4});
  const at::Tensor targets = torch::randn({16, 2});
  const auto loss = [&] {
    return torch::mse_loss(network->forward(inputs), targets);
  };
  const double before = loss().item<double>();
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
  }
  EXPECT_LT(loss().item<double>(), before);
}

TEST(Model, an_existing_sequential_becomes_a_model_and_keeps_its_weights) {
  torch::nn::Sequential network(
      torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
  const Model model = Model::from(network);
  EXPECT_EQ(model.layer_names(), (std::vector<std::string>{"0", "1", "2"}));
  const at::Tensor inputs = torch::randn({5, 4});
  EXPECT_TRUE(
      torch::equal(model.build()->forward(inputs), network->forward(inputs)));
  const auto state = map_of(model.build()->state());
  for (const auto& parameter : network->named_parameters()) {
    EXPECT_TRUE(torch::equal(state.at(parameter.key()), parameter.value()));
  }
}

TEST(Model, a_sequential_that_shares_modules_is_not_torn_apart) {
  const torch::nn::Linear shared(4, 4);
  torch::nn::Sequential network(shared, torch::nn::Tanh(), shared);
  try {
    Model::from(network);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "the network has the parameter '2.weight' twice");
  }
}

TEST(Model, layers_may_take_and_make_several_tensors) {
  struct Halve : torch::nn::Module {
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
      return {x.slice(1, 0, 2), x.slice(1, 2, 4)};
    }
  };
  struct Join : torch::nn::Module {
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
      return torch::cat({b, a}, 1);
    }
  };
  struct Split : torch::nn::Module {
    std::vector<at::Tensor> forward(const at::Tensor& x) {
      return {x, x + 1, x + 2};
    }
  };
  Model model("several");
  model.add<Halve>("halve");
  model.add<Join>("join");
  model.add<Split>("split").outputs(3);
  model.add<Join>("last").reads({"split:2", "split:0"});
  const at::Tensor result =
      model.build()->forward(torch::tensor({{1, 2, 3, 4}}));
  EXPECT_TRUE(torch::equal(result, torch::tensor({{3, 4, 1, 2, 5, 6, 3, 4}})));
}

TEST(Model, a_shared_parameter_is_one_parameter) {
  Model model("tied", 1);
  model.add<torch::nn::Linear>("a", 4, 4);
  model.add<torch::nn::Linear>("b", 4, 4).shares("weight", "a.weight");
  const auto network = model.build();
  EXPECT_EQ(network->parameters().size(), 3u);
  EXPECT_EQ(map_of(network->state()).count("b.weight"), 0u);
  // Against a network that uses one tensor twice.
  const auto state = map_of(network->state());
  at::Tensor weight = state.at("a.weight").detach().clone().requires_grad_();
  const at::Tensor inputs = torch::randn({3, 4});
  const at::Tensor expected =
      torch::linear(torch::linear(inputs, weight, state.at("a.bias")),
                    weight,
                    state.at("b.bias"));
  const at::Tensor found = network->forward(inputs);
  EXPECT_TRUE(torch::equal(found, expected));
  expected.sum().backward();
  found.sum().backward();
  EXPECT_TRUE(torch::equal(state.at("a.weight").grad(), weight.grad()));
  // A part that lacks the owner starts from the owner's bits.
  const auto part = model.build(1, 2);
  ASSERT_EQ(part->remote_ties().size(), 1u);
  EXPECT_EQ(part->remote_ties()[0].name, "a.weight");
  EXPECT_TRUE(torch::equal(part->remote_ties()[0].local, state.at("a.weight")));
  EXPECT_EQ(part->trained_parameters().size(), 1u);
}

TEST(Model, dropout_depends_on_the_moment_and_the_layer) {
  Model model("noisy");
  model.add<torch::nn::Dropout>("one", 0.5);
  const auto network = model.build();
  const at::Tensor ones = torch::ones({64});
  const Moment moment{1, 2, {3}};
  const at::Tensor first = network->forward(ones, moment);
  EXPECT_TRUE(torch::equal(network->forward(ones, moment), first));
  EXPECT_FALSE(torch::equal(network->forward(ones, Moment{1, 2, {4}}), first));
  EXPECT_FALSE(torch::equal(network->forward(ones, Moment{1, 3, {3}}), first));
  EXPECT_FALSE(torch::equal(network->forward(ones, Moment{2, 2, {3}}), first));
  Model other("noisy");
  other.add<torch::nn::Dropout>("two", 0.5);
  EXPECT_FALSE(torch::equal(other.build()->forward(ones, moment), first));
}

TEST(Model, names_that_cannot_name_tensors_are_refused) {
  for (const char* name : {"", "input", "a b", "a:1", ".a", "a.", "a..b"}) {
    Model model("names");
    EXPECT_THROW(model.add<torch::nn::ReLU>(name), Error) << name;
  }
  Model model("names");
  model.add<torch::nn::ReLU>("a.b");
  EXPECT_THROW(model.add<torch::nn::ReLU>("a.b"), Error);
  EXPECT_THROW(model.add<torch::nn::ReLU>("a"), Error);
  EXPECT_THROW(model.add<torch::nn::ReLU>("a.b.c"), Error);
  EXPECT_THROW(Model("empty").build(), Error);
}

TEST(Model, what_cannot_be_shared_is_refused) {
  const auto sharing = [](const char* parameter, const char* owner) {
    return problem_of([&] {
      Model model("tied");
      model.add<torch::nn::Linear>("a", 4, 4);
      model.add<torch::nn::Linear>("b", 4, 5).shares(parameter, owner);
      model.build();
    });
  };
  EXPECT_EQ(sharing("weight", "c.weight"),
            "layer 'b' shares 'c.weight', which no earlier layer has");
  EXPECT_EQ(sharing("weights", "a.weight"),
            "layer 'b' has no parameter 'weights' to share");
  EXPECT_EQ(sharing("weight", "a.weight"),
            "layer 'b' shares 'a.weight' [4, 4], but its own parameter is "
            "[5, 4]");
}

TEST(Network, state_goes_in_only_where_it_fits) {
  const auto network = three_layers().build();
  auto values = map_of(three_layers(2).build()->state());
  network->load_state(values);
  EXPECT_TRUE(torch::equal(map_of(network->state()).at("out.bias"),
                           values.at("out.bias")));
  auto missing = values;
  missing.erase("out.bias");
  EXPECT_EQ(problem_of([&] { network->load_state(missing); }),
            "the weights lack 'out.bias'");
  auto extra = values;
  extra["more"] = torch::ones({1});
  EXPECT_EQ(problem_of([&] { network->load_state(extra); }),
            "the weights hold 'more', which the model does not have");
  auto shape = values;
  shape["out.bias"] = torch::ones({3});
  EXPECT_EQ(problem_of([&] { network->load_state(shape); }),
            "'out.bias' is float [3] in the weights and float [2] in the "
            "model");
}

TEST(Network, a_layer_that_takes_another_number_of_tensors_is_named) {
  Model model("misfit");
  model.add<torch::nn::ReLU>("a");
  model.add<torch::nn::ReLU>("b").reads({"a", "input"});
  const std::string problem =
      problem_of([&] { model.build()->forward(torch::ones({2})); });
  EXPECT_NE(problem.find("layer 'b' failed on inputs [2], [2]"),
            std::string::npos)
      << problem;
}

}  // namespace
}  // namespace cleave
