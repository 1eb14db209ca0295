#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "cleave/model/network.h"
#include "cleave/plan/plan.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/registry.h"
#include "cleave/train/one_device.h"
#include "cleave/train/trainer.h"
#include "trainers.h"

// What the tests of training share.
namespace cleave {

// The one-device run with one thread, as every device of the tests has.
inline OneDeviceRun plain_run(const Model& model,
                              const std::vector<Batch>& batches,
                              int microbatches,
                              const TrainerOptions& options) {
  at::set_num_threads(1);
  return train_on_one_device(model, batches, microbatches, options);
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

// A plan that cuts the model into stages of the given sizes, with the devices
// as the schedule wants them; "auto" takes two stages per device as a V.
inline Plan plan_of(const Model& model,
                    const std::vector<int>& sizes,
                    const std::string& schedule,
                    int microbatches,
                    std::int64_t batch,
                    int stages_per_rank = 1) {
  Plan plan{.model = model.name(),
            .batch = batch,
            .microbatches = microbatches,
            .schedule = schedule};
  const std::string placed = schedule != kAutoSchedule ? schedule
                             : stages_per_rank == 2    ? "zb-v"
                                                       : "1f1b";
  const std::vector<Rank> ranks =
      placement(placed,
                {.ranks = static_cast<int>(sizes.size()) / stages_per_rank,
                 .stages_per_rank = stages_per_rank});
  const std::vector<std::string> names = model.layer_names();
  auto next = names.begin();
  for (size_t stage = 0; stage < sizes.size(); ++stage) {
    plan.stages.push_back(
        {.device = "cpu:" + std::to_string(ranks[stage].value),
         .layers = {next, next + sizes[stage]}});
    next += sizes[stage];
  }
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
                            const TrainerOptions& options,
                            const OneDeviceRun& expected) {
  SCOPED_TRACE(to_json(plan));
  Trainer trainer = trainer_of(model, plan, options);
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
