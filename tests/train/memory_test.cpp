// A device holds its own stage and nothing else.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/plan/measured_plan.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/registry.h"
#include "reference.h"

namespace cleave {
namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kLayerBytes = 4 * (kWidth * kWidth + kWidth);

TEST(Memory, with_eight_stages_a_device_never_held_more_than_its_stage) {
  Model model("deep");
  for (int layer = 0; layer < 8; ++layer) {
    model.add<torch::nn::Linear>(
        "layer." + std::to_string(layer), kWidth, kWidth);
  }
  const Trainer trainer(model,
                        plan_of(model, std::vector<int>(8, 1), "1f1b", 8, 8),
                        test_devices(8),
                        {.optimizer = Sgd{.momentum = 0}});
  for (const Bytes peak : trainer.peak_memory()) {
    EXPECT_GE(peak.value, kLayerBytes);
    EXPECT_LT(peak.value, 1.1 * kLayerBytes);
  }
}

TEST(Memory, optimizer_states_count_on_their_own_device) {
  Model model("uneven");
  model.add<torch::nn::Linear>("one", kWidth, kWidth);
  model.add<torch::nn::Linear>("two", kWidth, kWidth);
  model.add<torch::nn::Linear>("three", kWidth, kWidth);
  const Trainer trainer(model,
                        plan_of(model, {1, 2}, "1f1b", 2, 8),
                        test_devices(2),
                        {.optimizer = AdamW{}});
  const std::vector<Bytes> peaks = trainer.peak_memory();
  EXPECT_NEAR(peaks[0].value, 3.0 * kLayerBytes, 0.05 * kLayerBytes);
  EXPECT_NEAR(peaks[1].value, 6.0 * kLayerBytes, 0.05 * kLayerBytes);
}

// A network whose tensors are large against what libtorch needs beside.
struct Sizable {
  std::string name;
  Model model;
  Batch batch;
  double most = 1.2;  // predicted, of what is measured
};

// Measured at most, of what is predicted: little things are not counted.
constexpr double kNearly = 1.01;

std::vector<Sizable> sizable_networks() {
  const at::Tensor text = torch::randint(512, {8, 65});
  return {
      {"gpt",
       gpt({.width = 128,
            .depth = 4,
            .heads = 4,
            .context = 64,
            .vocabulary = 512,
            .tied = false}),
       {text.slice(1, 0, 64), text.slice(1, 1, 65)}},
      {"resnet",
       resnet({.input = {1, 16, 16}, .outputs = 4, .width = 16, .depth = 3}),
       {torch::randn({32, 1, 16, 16}), torch::randint(4, {32})},
       1.8},  // skips cross many cuts, and share their memory between threads
      {"mlp",
       mlp({.input = {256}, .outputs = 4, .width = 256, .depth = 8}),
       {torch::randn({512, 256}), torch::randint(4, {512})},
       1.25},  // with stages of a single layer messages are most of it
  };
}

// Predicted peaks, in the order of the ranks.
std::vector<Bytes> predicted_peaks(const Plan& plan) {
  std::vector<Bytes> peaks(rank_count(plan));
  const std::vector<Rank> ranks = placement_of(plan);
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    peaks[ranks[stage].value] = plan.stages[stage].peak;
  }
  return peaks;
}

TEST(Memory, is_not_more_than_predicted_and_not_much_less) {
  for (const auto& [name, model, batch, most] : sizable_networks()) {
    for (const std::string schedule :
         {"auto", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"}) {
      const Devices devices = test_devices(2);
      const std::int64_t samples = batch.inputs.size(0);
      const Plan plan = cleave::plan(model,
                                     devices,
                                     batch,
                                     {cross_entropy},
                                     {.batch = samples,
                                      .stages = 0,
                                      .microbatches = 4,
                                      .schedule = schedule});
      Trainer trainer(model, plan, devices, {});
      for (int step = 1; step <= 8; ++step) {
        trainer.step(batch);
      }
      const std::vector<Bytes> predicted = predicted_peaks(plan);
      const std::vector<Bytes> measured = trainer.peak_memory();
      for (size_t rank = 0; rank < predicted.size(); ++rank) {
        EXPECT_LE(measured[rank].value, kNearly * predicted[rank].value)
            << name << ", " << schedule << ", rank " << rank;
        EXPECT_LT(predicted[rank].value, most * measured[rank].value)
            << name << ", " << schedule << ", rank " << rank;
      }
    }
  }
}

// Of the replica that needs most: measured, and as predicted.
struct Peaks {
  double measured = 0;
  double predicted = 0;
};

// The least of several runs: a replica that is held up lets go of its gradients
// later.
Peaks peaks_with(Shard shard) {
  const Model model =
      mlp({.input = {256}, .outputs = 4, .width = 256, .depth = 8});
  const Batch batch{torch::randn({16, 256}), torch::randint(4, {16})};
  const Devices devices = test_devices(4);
  // Every layer takes one time, so that the cuts are always the same.
  Profile even =
      profile(model,
              {batch.inputs.narrow(0, 0, 2), batch.targets.narrow(0, 0, 2)},
              {cross_entropy},
              devices);
  for (LayerCost& layer : even.layers) {
    for (const auto time : kLayerTimes) {
      layer.*time = {1e-3};
    }
  }
  const Plan plan = make_plan(even,
                              device_specs(devices),
                              {.batch = 16,
                               .stages = 4,
                               .stages_per_device = 4,
                               .replicas = 4,
                               .microbatches = 2,
                               .schedule = "interleaved",
                               .shard = shard});
  Peaks peaks{.measured = 1e18,
              .predicted = static_cast<double>(plan.stages[0].peak.value)};
  for (int run = 0; run < 5; ++run) {
    Trainer trainer(model, plan, devices, {});
    for (int step = 1; step <= 2; ++step) {
      trainer.step(batch);
    }
    const Bytes most = std::ranges::max(trainer.peak_memory());
    peaks.measured = std::min(peaks.measured, static_cast<double>(most.value));
  }
  return peaks;
}

TEST(Memory, falls_with_shards_as_predicted) {
  Peaks before = peaks_with(Shard::none);
  for (const Shard shard : {Shard::optimizer, Shard::gradients}) {
    const Peaks divided = peaks_with(shard);
    EXPECT_LT(divided.predicted, 0.9 * before.predicted);
    EXPECT_LT(divided.measured, before.measured);
    EXPECT_LE(divided.measured, kNearly * divided.predicted);
    // Between threads, what others sent takes no memory here.
    EXPECT_LT(divided.predicted, 1.5 * divided.measured);
    before = divided;
  }
}

}  // namespace
}  // namespace cleave
