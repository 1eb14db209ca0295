#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cleave/model/network.h"
#include "cleave/plan/measure/device_specs.h"
#include "cleave/plan/measure/measured_plan.h"
#include "cleave/plan/plan.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/search/search.h"
#include "cleave/train/one_device.h"
#include "cleave/train/trainer.h"
#include "trainers.h"

// What the tests of training share.
namespace cleave {

// The one-device run with one thread, as every device of the tests has.
inline OneDeviceRun plain_run(const Model& model,
                              const std::vector<Batch>& batches,
                              int microbatches,
                              const Training& training) {
  at::set_num_threads(1);
  return train_on_one_device(model, batches, microbatches, training);
}

// A schedule, and with how many stages per device it is tried.
struct Way {
  std::string schedule;
  int stages_per_device = 1;
};

inline std::vector<Way> ways() {
  std::vector<Way> found{{"auto", 1}, {"auto", 2}};
  for (const ScheduleKind& kind : kSchedules) {
    if (kind.stages_per_rank != kAnyNumber) {
      found.push_back({std::string(kind.name), kind.stages_per_rank});
    } else {
      found.push_back({std::string(kind.name), 2});
    }
  }
  return found;
}

// The first layers of stages of these sizes, and the number of layers.
inline std::vector<int> first_layers(const std::vector<int>& sizes) {
  std::vector<int> first{0};
  for (const int size : sizes) {
    first.push_back(first.back() + size);
  }
  return first;
}

// A plan of these stages and passes, completed for one replica.
inline Plan plan_with(const Model& model,
                      const std::vector<int>& sizes,
                      Schedule passes,
                      std::int64_t batch) {
  Plan plan{.model = model.name(), .batch = batch, .schedule_name = "test"};
  passes.graph = StageGraph(static_cast<int>(sizes.size()),
                            stage_ties(first_layers(sizes), layer_ties(model)));
  plan.schedule = complete(passes);
  plan.devices.resize(plan.schedule.rows.size());
  const Order order(plan.schedule);
  const std::vector<std::string> names = model.layer_names();
  auto next = names.begin();
  for (StageId stage; stage.value < std::ssize(sizes); ++stage.value) {
    const int size = sizes[stage.value];
    plan.stages.push_back(
        {.rank = order.owner(stage).value(), .layers = {next, next + size}});
    next += size;
  }
  plan.prediction = Prediction{};  // so that ranks may steal: nothing costs
  plan.prediction->stages.resize(plan.stages.size());
  plan.prediction->peaks.resize(plan.devices.size());
  return plan;
}

// The F, B and W of stages that all take as long, on these ranks.
inline Schedule searched(const std::vector<Rank>& placement,
                         int microbatches,
                         std::vector<StageCost> costs) {
  const auto ranks = std::ranges::max(placement).value + 1;
  return search_schedule({.placement = placement,
                          .microbatches = microbatches,
                          .costs = {std::move(costs)},
                          .memory = std::vector<StageBytes>(placement.size()),
                          .limits = std::vector<Bytes>(ranks)})
      .value();
}

// A plan that cuts the model into stages of the given sizes, on ranks as the
// schedule wants them; "auto" takes two stages per rank as a V.
inline Plan plan_of(const Model& model,
                    const std::vector<int>& sizes,
                    const std::string& schedule,
                    int microbatches,
                    std::int64_t batch,
                    int stages_per_rank = 1) {
  const ScheduleShape shape{
      .ranks = static_cast<int>(sizes.size()) / stages_per_rank,
      .stages_per_rank = stages_per_rank,
      .microbatches = microbatches};
  if (schedule != kAutoSchedule) {
    return plan_with(model, sizes, make_schedule(schedule, shape), batch);
  }
  const StageCost even{Seconds{1e-3}, Seconds{1e-3}, Seconds{1e-3}};
  const char* const placed = stages_per_rank == 2 ? "zb-v" : "1f1b";
  return plan_with(model,
                   sizes,
                   searched(placement(placed, shape),
                            microbatches,
                            std::vector<StageCost>(sizes.size(), even)),
                   batch);
}

// What a plan synchronises.
struct Extras {
  int replicas = 1;
  ShardStates shard_states = ShardStates::none;
  bool clips = false;
};

// The plan with these: every layer is a bucket.
inline Plan with(Plan plan, const Extras& extras) {
  plan.replicas = extras.replicas;
  Schedule passes = passes_of(plan.schedule);
  passes.synchronisation = {.clips = extras.clips};
  for (StagePlan& stage : plan.stages) {
    stage.buckets.clear();
    if (extras.replicas > 1) {
      for (auto layer = stage.layers.rbegin(); layer != stage.layers.rend();
           ++layer) {
        stage.buckets.push_back({*layer});
      }
      passes.synchronisation.shard_states = extras.shard_states;
      passes.synchronisation.buckets.push_back(
          static_cast<int>(stage.buckets.size()));
    }
  }
  plan.schedule = complete(passes);
  return plan;
}

// One device per stage, one thread each, wherever the system puts it.
inline Devices test_devices(size_t count) {
  return local_devices("cpu:" + std::to_string(count),
                       {.threads = 1, .pin = false});
}

inline void expect_same_bits(const NamedTensors& found,
                             const NamedTensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    EXPECT_TRUE(torch::equal(found[i].second, expected[i].second))
        << found[i].first;
  }
}

// Trains by the plan: every loss and every weight as one device has them.
inline void expect_same_run(const Model& model,
                            const Plan& plan,
                            const std::vector<Batch>& batches,
                            const Training& training,
                            const OneDeviceRun& expected) {
  SCOPED_TRACE(to_json(plan));
  Trainer trainer =
      trainer_of(model, with(plan, {.clips = training.clip > 0}), training);
  for (size_t step = 0; step < batches.size(); ++step) {
    ASSERT_EQ(trainer.step(batches[step]).loss, expected.losses[step])
        << "step " << step;
  }
  const NamedTensors merged = trainer.merged();
  if (gets_all_stages()) {
    expect_same_bits(merged, expected.state);
  }
}

}  // namespace cleave
