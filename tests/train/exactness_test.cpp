// Every cut, every schedule: the bits of the one-device run.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>
#include <utility>

#include "cleave/schedule/generators/registry.h"
#include "networks.h"
#include "reference.h"

namespace cleave {
namespace {

// The plan with these stages in every way that their number allows; in every
// second one ranks steal work.
void expect_same_run_in_every_way(const Model& model,
                                  const std::vector<int>& sizes,
                                  const std::vector<Batch>& batches,
                                  const Training& training,
                                  const OneDeviceRun& expected,
                                  int microbatches = kMicrobatches,
                                  std::int64_t batch = kBatch) {
  bool steals = false;
  for (const auto& [schedule, per_device] : ways()) {
    if (std::ssize(sizes) % per_device == 0) {
      Plan plan =
          plan_of(model, sizes, schedule, microbatches, batch, per_device);
      plan.steals = std::exchange(steals, !steals);
      expect_same_run(model, plan, batches, training, expected);
    }
  }
}

using ExactnessCase = std::tuple<size_t, int, Way>;

// Small networks have fewer layers than four devices with two stages each.
int devices_of(const ExactnessCase& test, const Model& model) {
  const auto& [index, devices, way] = test;
  return std::min(devices, model.size() / way.stages_per_device);
}

class Exactness : public testing::TestWithParam<ExactnessCase> {
 protected:
  void SetUp() override {
    if (std::get<1>(GetParam()) > most_ranks()) {
      GTEST_SKIP() << "only " << most_ranks() << " ranks here";
    }
  }
};

TEST_P(Exactness, every_loss_and_weight_has_the_bits_of_one_device) {
  const auto& [index, wanted, way] = GetParam();
  const Case& network = cases()[index];
  const Model model = network.make();
  const std::vector<Batch> batches = draw_batches(network);
  // Of every two networks, and of every two numbers of devices, one clips.
  const bool clips = (static_cast<int>(index) + wanted) % 2 == 0;
  const Training training{.loss = network.loss,
                          .optimizer = AdamW{},
                          .learning_rate = constant_rate(3e-3),
                          .clip = clips ? 1.0 : 0,
                          .seed = 11};
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);

  const int devices = devices_of(GetParam(), model);
  bool steals = wanted > 2;  // one of the two cuts does
  for (const std::vector<int>& sizes :
       cuts_of(model.size(), devices * way.stages_per_device)) {
    Plan plan = plan_of(model,
                        sizes,
                        way.schedule,
                        kMicrobatches,
                        kBatch,
                        way.stages_per_device);
    plan.steals = std::exchange(steals, !steals);
    expect_same_run(model, plan, batches, training, expected);
  }
}

std::string name_of(const testing::TestParamInfo<ExactnessCase>& test) {
  const auto& [index, devices, way] = test.param;
  std::string name = cases()[index].name + "_" + std::to_string(devices) +
                     "_devices_" + way.schedule + "_" +
                     std::to_string(way.stages_per_device);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Networks,
                         Exactness,
                         testing::Combine(testing::Range<size_t>(0, 6),
                                          testing::Range(1, 5),
                                          testing::ValuesIn(ways())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Wide,
                         Exactness,
                         testing::Combine(testing::Values(3),
                                          testing::Values(8),
                                          testing::ValuesIn(ways())),
                         name_of);

TEST(Exactness, a_cut_may_fall_between_any_two_layers_of_a_transformer) {
  const Case& network = cases()[3];
  const Model model = network.make();
  const std::vector<Batch> batches = draw_batches(network);
  const Training training{.optimizer = Sgd{}, .seed = 11};
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  for (int first = 1; first < model.size(); ++first) {
    expect_same_run_in_every_way(
        model, {first, model.size() - first}, batches, training, expected);
  }
}

// The bits of one device, with stages of any of these numbers of layers, in
// every way. The model takes and gives what the last case's does.
void expect_exact(const Model& model,
                  const std::vector<std::vector<int>>& cuts,
                  const Training& training = {.loss = mean_squared_error()}) {
  const std::vector<Batch> batches = draw_batches(cases().back());
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  for (const std::vector<int>& sizes : cuts) {
    expect_same_run_in_every_way(model, sizes, batches, training, expected);
  }
}

TEST(Exactness, a_skip_may_cross_two_cuts_and_be_read_on_every_side) {
  struct Twist : torch::nn::Module {
    Twist() : scale(register_parameter("scale", torch::randn({6}))) {}
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
      return torch::tanh(a * scale) + b * a;
    }
    at::Tensor scale;
  };
  Model model("skips", 5);
  model.add<torch::nn::Linear>("start", 6, 6);
  model.add<Twist>("near").reads({"start", "input"});
  model.add<Twist>("middle_1").reads({"near", "start"});
  model.add<Twist>("middle_2").reads({"middle_1", "start"});
  model.add<Twist>("far_1").reads({"middle_2", "start"});
  model.add<Twist>("far_2").reads({"far_1", "start"});
  model.add<torch::nn::Linear>("out", 6, 2);
  expect_exact(model,
               {{1, 1, 1, 1, 1, 1, 1},
                {2, 2, 3},
                {1, 3, 3},
                {3, 1, 3},
                {2, 1, 4},
                {1, 2, 1, 3},
                {1, 1, 1, 1, 1, 2}});
}

TEST(Exactness, a_parameter_may_be_shared_by_layers_of_three_stages) {
  Model model("shared", 5);
  model.add<torch::nn::Linear>("first", 6, 6);
  for (const char* name : {"second", "third", "fourth"}) {
    model.add<torch::nn::Tanh>(std::string(name) + "_tanh");
    model.add<torch::nn::Linear>(name, 6, 6).shares("weight", "first.weight");
  }
  model.add<torch::nn::Linear>("out", 6, 2);
  expect_exact(model,
               {{8}, {1, 7}, {3, 2, 3}, {1, 2, 5}, {2, 3, 1, 2}, {5, 3}},
               {.loss = mean_squared_error(), .clip = 0.5});
}

// Its stages lie on devices as a V and in turn, so that gradients and values of
// the parameter also pass between stages of one device.
TEST(Exactness, a_shared_parameter_may_pass_a_device_twice) {
  Model model("shared", 5);
  model.add<torch::nn::Linear>("first", 6, 6);
  for (const char* name : {"second", "third", "fourth"}) {
    model.add<torch::nn::Linear>(name, 6, 6).shares("weight", "first.weight");
  }
  model.add<torch::nn::Linear>("out", 6, 2);
  const std::vector<Batch> batches = draw_batches(cases().back());
  for (const double clip : {0.0, 0.5}) {
    const Training training{.loss = mean_squared_error(), .clip = clip};
    const OneDeviceRun expected =
        plain_run(model, batches, kMicrobatches, training);
    for (const char* schedule : {"zb-v", "interleaved"}) {
      expect_same_run(
          model,
          plan_of(model, {1, 1, 1, 2}, schedule, kMicrobatches, kBatch, 2),
          batches,
          training,
          expected);
    }
  }
}

TEST(Exactness, a_shared_parameter_may_be_frozen) {
  Model model("shared", 5);
  model.add("first", [] {
    auto linear = std::make_shared<torch::nn::LinearImpl>(6, 6);
    linear->weight.requires_grad_(false);
    return make_layer(linear);
  });
  model.add<torch::nn::Tanh>("tanh");
  model.add<torch::nn::Linear>("second", 6, 6).shares("weight", "first.weight");
  model.add<torch::nn::Linear>("out", 6, 2);
  expect_exact(model, {{4}, {1, 3}, {2, 1, 1}, {1, 1, 1, 1}});
}

TEST(Exactness, layers_may_change_what_they_read_in_place) {
  Model model("in_place", 5);
  model.add<torch::nn::ReLU>("first", torch::nn::ReLUOptions(true));
  model.add<torch::nn::Linear>("a", 6, 6);
  model.add<torch::nn::ReLU>("relu", torch::nn::ReLUOptions(true));
  model.add<torch::nn::Linear>("b", 6, 2);
  expect_exact(model, {{2, 1, 1}, {1, 3}, {3, 1}, {4}});
}

// Of one sample, so that gradients of both vectors are one tensor.
TEST(Exactness, parameters_may_be_added_to_each_other) {
  struct Places : torch::nn::Module {
    Places()
        : one(register_parameter("one", torch::randn({1, 6}))),
          other(register_parameter("other", torch::randn({1, 6}))) {}
    at::Tensor forward(const at::Tensor& x) { return x + one + other; }
    at::Tensor one;
    at::Tensor other;
  };
  Model model("places", 5);
  model.add<torch::nn::Linear>("in", 6, 6);
  model.add<Places>("places");
  model.add<torch::nn::Linear>("out", 6, 2);
  torch::manual_seed(3);
  std::vector<Batch> batches;
  for (int step = 0; step < 5; ++step) {
    batches.push_back(numbers(kMicrobatches));
  }
  const Training training{.loss = mean_squared_error(), .clip = 0.5};
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  for (const std::vector<int>& sizes :
       std::vector<std::vector<int>>{{3}, {1, 2}, {2, 1}}) {
    expect_same_run_in_every_way(model,
                                 sizes,
                                 batches,
                                 training,
                                 expected,
                                 kMicrobatches,
                                 kMicrobatches);
  }
}

TEST(Exactness, hooks_see_gradients_and_change_them) {
  Model model("hooks", 5);
  model.add<torch::nn::Linear>("in", 6, 6);
  model.add("hooked", [] {
    auto linear = std::make_shared<torch::nn::LinearImpl>(6, 6);
    linear->weight.register_hook(
        [](const at::Tensor& gradient) { return 0.5 * gradient; });
    return make_layer(linear);
  });
  model.add<torch::nn::Linear>("out", 6, 2);
  expect_exact(model, {{3}, {1, 2}, {2, 1}});
}

TEST(Exactness, a_layer_may_have_a_module_under_two_names) {
  struct Low : torch::nn::Module {
    Low() : low(register_parameter("low", torch::randn({6, 2}))) {}
    at::Tensor forward(const at::Tensor& x) { return x.mm(low.mm(low.t())); }
    at::Tensor low;
  };
  struct Twice : torch::nn::Module {
    Twice() : inner(register_module("inner", std::make_shared<Low>())) {
      register_module("again", inner);
    }
    at::Tensor forward(const at::Tensor& x) {
      return torch::tanh(inner->forward(x));
    }
    std::shared_ptr<Low> inner;
  };
  Model model("twice", 5);
  model.add<Twice>("twice");
  model.add<torch::nn::Linear>("out", 6, 2);
  expect_exact(model,
               {{2}, {1, 1}},
               {.loss = mean_squared_error(), .optimizer = Sgd{.momentum = 0}});
}

TEST(Exactness, only_the_first_result_of_the_last_layer_counts) {
  struct Both : torch::nn::Module {
    Both() : inner(register_module("inner", torch::nn::Linear(6, 2))) {}
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
      const at::Tensor made = inner(x);
      return {made, made.sum(-1, true)};
    }
    torch::nn::Linear inner;
  };
  Model model("both", 5);
  model.add<torch::nn::Linear>("in", 6, 6);
  model.add<Both>("both").outputs(2);
  expect_exact(model, {{2}, {1, 1}});
}

TEST(Exactness, shapes_may_change_from_step_to_step) {
  const Model model = cases()[3].make();
  std::vector<Batch> batches;
  torch::manual_seed(9);
  for (const std::int64_t length : {3, 11, 1, 12, 7}) {
    const at::Tensor text = torch::randint(17, {5, length + 1});
    batches.push_back({text.slice(1, 0, length), text.slice(1, 1)});
  }
  const Training training{};
  const OneDeviceRun expected = plain_run(model, batches, 2, training);
  for (const std::vector<int>& sizes :
       std::vector<std::vector<int>>{{3, 3, 4}, {3, 2, 3, 2}}) {
    expect_same_run_in_every_way(
        model, sizes, batches, training, expected, 2, 5);
  }
}

TEST(Exactness, frozen_layers_keep_their_weights_wherever_the_cut_falls) {
  Model model("frozen", 5);
  model.add("frozen", [] {
    auto linear = std::make_shared<torch::nn::LinearImpl>(6, 6);
    linear->weight.requires_grad_(false);
    linear->bias.requires_grad_(false);
    return make_layer(linear);
  });
  model.add<torch::nn::ReLU>("relu");
  model.add<torch::nn::Linear>("out", 6, 2);
  expect_exact(model, {{1, 2}, {2, 1}, {1, 1, 1}});
}

// Any runs of layers on any devices, with times that make searched schedules
// uneven.
TEST(Exactness, stages_may_lie_on_any_devices_and_take_any_time) {
  const Case& network = cases()[3];
  const Model model = network.make();
  std::vector<Batch> batches = draw_batches(network);
  batches.resize(6);
  const Training training{.seed = 11};
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  std::mt19937 random(5);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  for (int round = 0; round < 24; ++round) {
    const int stages = 3 + draw(model.size() - 3);
    std::vector<int> sizes(stages, 1);
    for (int layer = stages; layer < model.size(); ++layer) {
      ++sizes[draw(stages)];
    }
    const int devices = 2 + draw(2);
    std::vector<Rank> placement;
    std::vector<StageCost> costs;
    for (int stage = 0; stage < stages; ++stage) {
      placement.push_back({stage < devices ? stage : draw(devices)});
      const auto time = [&] { return Seconds{1e-3 * (1 + draw(9))}; };
      costs.push_back({time(), time(), time()});
    }
    Plan plan = plan_with(
        model, sizes, searched(placement, kMicrobatches, costs), kBatch);
    plan.steals = round % 2 == 0;
    expect_same_run(model, plan, batches, training, expected);
  }
}

TEST(Exactness, a_device_may_have_more_than_two_stages) {
  const Case& network = cases()[3];
  const Model model = network.make();
  const std::vector<Batch> batches = draw_batches(network);
  const Training training{.seed = 11};
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  for (const int per_device : {3, 4}) {
    const int stages = 2 * per_device;
    Plan plan = plan_of(model,
                        cuts_of(model.size(), stages).back(),
                        "interleaved",
                        kMicrobatches,
                        kBatch,
                        per_device);
    expect_same_run(model, plan, batches, training, expected);
    plan.steals = true;
    expect_same_run(model, plan, batches, training, expected);
  }
}

}  // namespace
}  // namespace cleave
