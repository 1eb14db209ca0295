// A process that leaves out all that Cleave hooks into libtorch.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/device/device.h"
#include "cleave/error.h"
#include "cleave/model/families/families.h"
#include "cleave/plan/measure/measured_plan.h"
#include "networks.h"
#include "reference.h"

namespace cleave {
namespace {

constexpr int kFewSteps = 5;

class WithoutHooks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    use_process_hooks({.allocator = false, .dispatcher = false});
    torch::manual_seed(3);
  }
};

std::vector<Batch> few_images() {
  std::vector<Batch> batches;
  for (int step = 0; step < kFewSteps; ++step) {
    batches.push_back(images(kBatch));
  }
  return batches;
}

torch::nn::Sequential small_network() {
  return torch::nn::Sequential(torch::nn::Conv2d(1, 4, 3),
                               torch::nn::ReLU(),
                               torch::nn::Flatten(),
                               torch::nn::Linear(144, 16),
                               torch::nn::ReLU(),
                               torch::nn::Linear(16, 4));
}

// One step in the loop that a user of libtorch writes.
double plain_step(torch::nn::Sequential& network,
                  Optimizer& optimizer,
                  const Batch& batch) {
  network->zero_grad();
  const auto inputs = batch.inputs.tensor_split(kMicrobatches);
  const auto targets = batch.targets.tensor_split(kMicrobatches);
  double loss = 0;
  for (int m = 0; m < kMicrobatches; ++m) {
    const at::Tensor sum =
        torch::nll_loss(torch::log_softmax(network->forward(inputs[m]), 1),
                        targets[m],
                        {},
                        at::Reduction::Sum);
    sum.backward(torch::full_like(sum, 1.0 / kBatch));
    loss += sum.item<double>();
  }
  optimizer.step(0.1);
  return loss / kBatch;
}

Training plain_training() {
  const Loss loss{
      "nll",
      [](const at::Tensor& result, const at::Tensor& targets) {
        return torch::nll_loss(
            torch::log_softmax(result, 1), targets, {}, at::Reduction::Sum);
      },
      [](const at::Tensor& targets) { return targets.size(0); }};
  return {.loss = loss,
          .optimizer = Sgd{},
          .learning_rate = constant_rate(0.1),
          .batch = kBatch};
}

TEST_F(WithoutHooks, losses_are_plain_libtorchs_on_one_device_and_on_two) {
  at::set_num_threads(1);
  torch::nn::Sequential network = small_network();
  const Model model = Model::from(network);
  const Training training = plain_training();
  Trainer one = trainer_of(
      model, plan_of(model, {6}, "1f1b", kMicrobatches, kBatch), training);
  Trainer two = trainer_of(
      model, plan_of(model, {3, 3}, "1f1b", kMicrobatches, kBatch), training);
  Trainer split = trainer_of(
      model, plan_of(model, {3, 3}, "zb-h1", kMicrobatches, kBatch), training);
  NamedTensors parameters;
  for (const auto& parameter : network->named_parameters()) {
    parameters.emplace_back(parameter.key(), parameter.value());
  }
  const auto optimizer = training.optimizer(whole_parameters(parameters));
  for (const Batch& batch : few_images()) {
    const double expected = plain_step(network, *optimizer, batch);
    EXPECT_EQ(one.step(batch).loss, expected);
    EXPECT_EQ(two.step(batch).loss, expected);
    EXPECT_EQ(split.step(batch).loss, expected);
  }
}

TEST_F(WithoutHooks, weights_depend_on_seed_and_layer_alone) {
  const Model model =
      mlp({.input = {1, 8, 8}, .outputs = 4, .width = 24, .depth = 3});
  const std::vector<Batch> batches = few_images();
  const Training classes{};
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, classes);
  const int half = model.size() / 2;
  expect_same_run(
      model,
      plan_of(
          model, {half, model.size() - half}, "zb-h1", kMicrobatches, kBatch),
      batches,
      classes,
      expected);
}

TEST_F(WithoutHooks, a_measured_plan_trains_to_the_same_bits) {
  const Model model =
      mlp({.input = {1, 8, 8}, .outputs = 4, .width = 24, .depth = 3});
  const std::vector<Batch> batches = few_images();
  const Training training{.batch = kBatch};
  const Devices devices = test_devices(2);
  const Plan found = plan(model,
                          devices,
                          batches.front(),
                          training,
                          {.stages = 2, .microbatches = kMicrobatches});
  Trainer trainer(model, found, devices, training);
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  for (std::size_t step = 0; step < batches.size(); ++step) {
    EXPECT_EQ(trainer.step(batches[step]).loss, expected.losses[step]);
  }
  expect_same_bits(trainer.merged(), expected.state);
  EXPECT_EQ(trainer.peak_memory(), std::vector<Bytes>(2));
}

TEST_F(WithoutHooks, a_layer_leaves_the_global_generator_as_it_was) {
  torch::manual_seed(5);
  const at::Tensor expected = torch::rand({4});
  torch::manual_seed(5);
  mlp({.input = {8}, .outputs = 4}).build();
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST_F(WithoutHooks, what_needs_them_is_refused) {
  const Model model = mlp({.input = {1, 8, 8}, .outputs = 4});
  const Devices capped =
      local_devices("cpu:1", {.memory = Bytes{1 << 30}, .pin = false});
  EXPECT_THROW(plan(model, capped, images(kBatch), {.batch = kBatch}), Error);
  const auto network = model.build();
  network->compute_in(Precision::bf16);
  EXPECT_THROW(network->forward(images(1).inputs), Error);
  EXPECT_THROW(use_process_hooks({}), Error);
}

}  // namespace
}  // namespace cleave
