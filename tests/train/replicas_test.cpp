// Mirrored pipelines: what one device learns, the same bits on every replica.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "networks.h"
#include "reference.h"
#include "trainers.h"

namespace cleave {
namespace {

struct MeshCase {
  int replicas = 1;
  int places = 1;
};

void PrintTo(const MeshCase& mesh, std::ostream* out) {
  *out << mesh.replicas << "x" << mesh.places;
}

class Replicas : public testing::TestWithParam<
                     std::tuple<size_t, MeshCase, bool, ShardStates>> {
 protected:
  void SetUp() override {
    const MeshCase mesh = std::get<1>(GetParam());
    if (mesh.replicas * mesh.places > most_ranks()) {
      GTEST_SKIP() << "only " << most_ranks() << " ranks here";
    }
  }
};

Plan mirrored_plan(const Model& model,
                   const MeshCase& mesh,
                   int microbatches,
                   const std::string& schedule = "zb-h1",
                   ShardStates shard_states = ShardStates::none,
                   bool clips = false) {
  return with(plan_of(model,
                      cuts_of(model.size(), mesh.places).front(),
                      schedule,
                      microbatches,
                      kBatch),
              {mesh.replicas, shard_states, clips});
}

TEST_P(Replicas, every_loss_is_that_of_one_device_and_replicas_stay_equal) {
  const Case& network = cases()[std::get<0>(GetParam())];
  const MeshCase mesh = std::get<1>(GetParam());
  constexpr int kEach = 2;  // microbatches of every replica
  const Model model = network.make();
  const std::vector<Batch> batches = draw_batches(network);
  const Training training{.loss = network.loss,
                          .optimizer = Sgd{},
                          .learning_rate = constant_rate(1e-2),
                          .clip = std::get<2>(GetParam()) ? 1.0 : 0.0,
                          .seed = 11};
  const OneDeviceRun expected =
      plain_run(model, batches, mesh.replicas * kEach, training);
  // Gradients that are found by B alone, and by W.
  const bool clips = std::get<2>(GetParam());
  const Plan plan = mirrored_plan(model,
                                  mesh,
                                  kEach,
                                  clips ? "1f1b" : "zb-h1",
                                  std::get<3>(GetParam()),
                                  clips);
  Trainer trainer = trainer_of(model, plan, training);
  for (size_t step = 0; step < batches.size(); ++step) {
    const double loss = trainer.step(batches[step]).loss;
    // Sums in another order; the error of one step, not of all before it.
    EXPECT_NEAR(loss, expected.losses[step], 1e-6 * expected.losses[step])
        << "step " << step;
  }
  const std::vector<std::uint64_t> prints = trainer.fingerprints();
  for (size_t rank = mesh.places; rank < prints.size(); ++rank) {
    EXPECT_EQ(prints[rank], prints[rank - mesh.places]) << "rank " << rank;
  }
  const NamedTensors merged = trainer.merged();
  if (gets_all_stages()) {
    ASSERT_EQ(merged.size(), expected.state.size());
    for (size_t i = 0; i < merged.size(); ++i) {
      EXPECT_EQ(merged[i].first, expected.state[i].first);
    }
  }
}

std::string mesh_name(const testing::TestParamInfo<Replicas::ParamType>& test) {
  const auto& [network, mesh, clips, shard] = test.param;
  return cases()[network].name + "_" + std::to_string(mesh.replicas) + "x" +
         std::to_string(mesh.places) + (clips ? "_clipped" : "") +
         (shard == ShardStates::none        ? ""
          : shard == ShardStates::optimizer ? "_sharded"
                                            : "_sharded_gradients");
}

INSTANTIATE_TEST_SUITE_P(
    Meshes,
    Replicas,
    testing::Combine(testing::Values(0, 1, 3, 5),
                     testing::Values(MeshCase{2, 1},
                                     MeshCase{2, 2},
                                     MeshCase{4, 1},
                                     MeshCase{4, 2},
                                     MeshCase{2, 4}),
                     testing::Bool(),
                     testing::Values(ShardStates::none,
                                     ShardStates::optimizer,
                                     ShardStates::gradients)),
    mesh_name);

// Ranks have two stages each, and replicas not always as many microbatches, or
// none: all must add up in one order, or they wait for each other.
TEST(Mirrors, of_several_stages_each_add_up_gradients_in_one_order) {
  if (most_ranks() < 4) {
    GTEST_SKIP();
  }
  const Case& network = cases()[3];
  const Model model = network.make();
  torch::manual_seed(3);
  std::vector<Batch> batches;
  for (const std::int64_t samples : {8, 7, 5, 3, 2, 1, 8}) {
    batches.push_back(network.draw(samples));
  }
  Training training{.optimizer = Sgd{},
                    .learning_rate = constant_rate(1e-2),
                    .seed = 11,
                    .patience = {20}};
  const OneDeviceRun expected = plain_run(model, batches, 8, training);
  for (const std::string schedule : {"zb-v", "interleaved", "auto"}) {
    const Plan plan = with(
        plan_of(
            model, cuts_of(model.size(), 4).front(), schedule, 4, kBatch, 2),
        {.replicas = 2, .shard_states = ShardStates::gradients});
    Trainer trainer = trainer_of(model, plan, training);
    for (size_t step = 0; step < batches.size(); ++step) {
      EXPECT_NEAR(trainer.step(batches[step]).loss,
                  expected.losses[step],
                  1e-6 * expected.losses[step])
          << schedule << ", step " << step;
    }
    const std::vector<std::uint64_t> prints = trainer.fingerprints();
    EXPECT_EQ(prints[0], prints[2]);
    EXPECT_EQ(prints[1], prints[3]);
  }
}

TEST(Mirrors, keep_the_memory_order_of_parameters) {
  if (most_ranks() < 2) {
    GTEST_SKIP();
  }
  Model model("turned");
  model.add("turned", [] {
    auto linear = std::make_shared<torch::nn::LinearImpl>(6, 4);
    const torch::NoGradGuard no_grad;
    linear->weight.set_data(torch::randn({6, 4}).t());
    return make_layer(linear);
  });
  torch::manual_seed(3);
  const std::vector<Batch> batches(
      5, {torch::randn({8, 6}), torch::randint(4, {8})});
  const Training training{.optimizer = AdamW{},
                          .learning_rate = constant_rate(1e-2)};
  const OneDeviceRun expected = plain_run(model, batches, 4, training);
  const Plan plan = with(plan_of(model, {1}, "1f1b", 2, 8), {.replicas = 2});
  Trainer trainer = trainer_of(model, plan, training);
  for (size_t step = 0; step < batches.size(); ++step) {
    EXPECT_NEAR(trainer.step(batches[step]).loss, expected.losses[step], 1e-5);
  }
}

TEST(Mirrors, keep_a_quarter_of_the_states_each) {
  if (most_ranks() < 4) {
    GTEST_SKIP();
  }
  const Case& network = cases()[3];
  const Model model = network.make();
  const auto states_with = [&](ShardStates shard) {
    const Plan plan = mirrored_plan(model, {4, 1}, 2, "zb-h1", shard);
    return trainer_of(model, plan, {.optimizer = AdamW{}}).optimizer_states();
  };
  const std::vector<Bytes> whole = states_with(ShardStates::none);
  const std::vector<Bytes> quarters = states_with(ShardStates::optimizer);
  std::int64_t sum = 0;
  for (int rank = 0; rank < 4; ++rank) {
    sum += quarters[rank].value;
    // One number more per parameter where it does not divide by four.
    EXPECT_NEAR(static_cast<double>(quarters[rank].value) /
                    static_cast<double>(whole[rank].value),
                0.25,
                0.01);
  }
  // But every replica counts the steps of all parameters.
  const auto parameters = std::ssize(model.build()->trained_parameters());
  EXPECT_EQ(sum, whole[0].value + 3 * parameters * 4);
}

TEST(Mirrors, evaluate_alike_again_and_again) {
  if (most_ranks() < 4) {
    GTEST_SKIP();
  }
  const Case& network = cases()[1];  // with batch norm
  const Model model = network.make();
  torch::manual_seed(5);
  const Batch samples = network.draw(37);
  const TensorDataset data(samples.inputs, samples.targets, 4, "samples");
  const Plan plan = mirrored_plan(model, {2, 2}, 2);
  Trainer trainer = trainer_of(model, plan, {.seed = 11});
  for (const Batch& batch : draw_batches(network)) {
    trainer.step(batch);
  }
  const Evaluation first = trainer.evaluate(data);
  EXPECT_EQ(first.samples, 37);
  const NamedTensors merged = trainer.merged();
  const Evaluation again = trainer.evaluate(data);
  EXPECT_EQ(first.loss, again.loss);
  EXPECT_EQ(first.accuracy, again.accuracy);
}

}  // namespace
}  // namespace cleave
