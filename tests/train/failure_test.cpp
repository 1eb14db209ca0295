// What goes wrong in one stage is told once, by name, and nobody hangs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <utility>

#include "cleave/error.h"
#include "reference.h"

namespace cleave {
namespace {

// Fails in the forward, or in the backward, once its input is large.
struct Fuse : torch::nn::Module {
  explicit Fuse(bool in_backward) : in_backward_(in_backward) {}

  at::Tensor forward(const at::Tensor& x) {
    if (x.max().item<double>() < 100) {
      return x * 1.0;
    }
    if (!in_backward_) {
      throw std::runtime_error("the fuse is blown");
    }
    at::Tensor out = x * 1.0;
    out.register_hook([](const at::Tensor&) -> at::Tensor {
      throw std::runtime_error("the fuse is blown");
    });
    return out;
  }

  bool in_backward_;
};

Model fused_model(bool in_backward) {
  Model model("fused");
  model.add<torch::nn::Identity>("a");
  model.add<torch::nn::Linear>("b", 4, 4);
  model.add<torch::nn::Identity>("c");
  model.add("fuse", [in_backward] {
    return make_layer(std::make_shared<Fuse>(in_backward));
  });
  model.add<torch::nn::Linear>("out", 4, 2);
  return model;
}

// The input reaches the fuse unchanged: b is the identity.
Batch batch_with_spike(int sample) {
  at::Tensor inputs = torch::zeros({8, 4});
  if (sample >= 0) {
    inputs[sample].fill_(1e6);
  }
  return {inputs, torch::zeros({8, 2})};
}

std::string problem_of(Trainer& trainer, const Batch& batch) {
  try {
    trainer.step(batch);
  } catch (const Error& error) {
    return error.problem();
  }
  return "no error";
}

class Failure : public testing::TestWithParam<bool> {};

TEST_P(Failure, the_error_names_stage_layer_microbatch_and_action) {
  const bool in_backward = GetParam();
  const Model model = fused_model(in_backward);
  bool steals = false;  // the first time
  for (const char* schedule : {"gpipe", "1f1b", "gpipe"}) {
    Plan plan = plan_of(model, {1, 1, 2, 1}, schedule, 8, 8);
    plan.steals = std::exchange(steals, true);
    Trainer trainer(
        model, plan, test_devices(4), {.loss = mean_squared_error()});
    trainer.step(batch_with_spike(-1));
    const std::string problem = problem_of(trainer, batch_with_spike(5));
    EXPECT_NE(problem.find("stage 2"), std::string::npos) << problem;
    EXPECT_NE(problem.find("microbatch 5"), std::string::npos) << problem;
    EXPECT_NE(problem.find("the fuse is blown"), std::string::npos) << problem;
    EXPECT_NE(problem.find(in_backward ? "backward" : "layer 'fuse'"),
              std::string::npos)
        << problem;
    EXPECT_EQ(problem_of(trainer, batch_with_spike(-1)),
              "the trainer stopped at an earlier error");
  }
}

INSTANTIATE_TEST_SUITE_P(Where, Failure, testing::Bool(), [](const auto& test) {
  return test.param ? "backward" : "forward";
});

TEST(Failure, a_layer_that_cannot_be_built_is_named) {
  Model model("broken");
  model.add<torch::nn::Linear>("fine", 4, 4);
  model.add("broken",
            []() -> Layer { throw std::runtime_error("no such file"); });
  try {
    const Trainer trainer(
        model, plan_of(model, {1, 1}, "1f1b", 2, 4), test_devices(2), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "layer 'broken' could not be built: no such file");
  }
}

TEST(Failure, shapes_that_do_not_fit_are_told_with_the_layer) {
  Model model("misfit");
  model.add<torch::nn::Linear>("a", 4, 5);
  model.add<torch::nn::Linear>("b", 4, 2);
  Trainer trainer(model,
                  plan_of(model, {1, 1}, "1f1b", 2, 8),
                  test_devices(2),
                  {.loss = mean_squared_error()});
  const std::string problem = problem_of(trainer, batch_with_spike(-1));
  EXPECT_NE(problem.find("layer 'b' failed on inputs [4, 5]"),
            std::string::npos)
      << problem;
}

TEST(Failure, a_plan_for_another_model_is_refused) {
  const Model model = fused_model(false);
  Plan plan = plan_of(model, {1, 1, 2, 1}, "1f1b", 2, 8);
  std::swap(plan.stages[0], plan.stages[1]);
  EXPECT_THROW(Trainer(model, plan, test_devices(4), {}), Error);
  EXPECT_THROW(
      Trainer(model, plan_of(model, {2, 3}, "1f1b", 2, 8), test_devices(1), {}),
      Error);
}

TEST(Failure, a_device_that_outgrows_its_budget_is_named_with_the_layer) {
  Model model("wide");
  model.add<torch::nn::Linear>("a", 64, 64);
  model.add<torch::nn::Linear>("b", 64, 4096);
  model.add<torch::nn::Linear>("c", 4096, 2);
  Devices devices = test_devices(2);
  devices[1].memory = {5'000'000};  // the weights of b and c are 1.1 MB
  Trainer trainer(
      model,
      plan_of(model, {1, 2}, "1f1b", 2, 256),
      devices,
      {.loss = mean_squared_error(), .optimizer = Sgd{.momentum = 0}});
  const std::string problem =
      problem_of(trainer, {torch::randn({512, 64}), torch::randn({512, 2})});
  EXPECT_EQ(problem.find("stage 1, microbatch "), 0) << problem;
  EXPECT_NE(problem.find("layer 'b'"), std::string::npos) << problem;
  EXPECT_NE(problem.find("device 'cpu:1' has a budget of 4.77 MiB, holds "),
            std::string::npos)
      << problem;
}

// Weights of 1.1 MB, AdamW's states of twice that, and gradients of as much as
// the weights.
TEST(Failure, also_backwards_and_updates_that_outgrow_it_name_the_layers) {
  Model model("wide");
  model.add<torch::nn::Linear>("a", 64, 64);
  model.add<torch::nn::Linear>("b", 64, 4096);
  model.add<torch::nn::Linear>("c", 4096, 2);
  const auto problem_with = [&](std::int64_t budget) -> std::string {
    Devices devices = test_devices(2);
    devices[1].memory = {budget};
    try {
      Trainer trainer(model,
                      plan_of(model, {1, 2}, "gpipe", 1, 8),
                      devices,
                      {.loss = mean_squared_error()});
      trainer.step({torch::randn({8, 64}), torch::randn({8, 2})});
    } catch (const Error& error) {
      return error.problem();
    }
    return "no error";
  };
  EXPECT_EQ(problem_with(2'000'000).find(
                "stage 1, update of layers 'b' to 'c': device 'cpu:1' has "),
            0)
      << problem_with(2'000'000);
  EXPECT_EQ(problem_with(3'900'000).find(
                "stage 1, microbatch 0, backward of layers 'b' to 'c': "
                "device 'cpu:1' has "),
            0)
      << problem_with(3'900'000);
}

}  // namespace
}  // namespace cleave
