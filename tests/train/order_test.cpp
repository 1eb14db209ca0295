// What is printed is what runs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "cleave/schedule/op.h"
#include "cleave/schedule/validate.h"
#include "networks.h"
#include "reference.h"

namespace cleave {
namespace {

Row of_lane(const Row& row, Lane lane) {
  Row found;
  std::ranges::copy_if(row, std::back_inserter(found), [&](const Action& each) {
    return lane_of(each.op) == lane;
  });
  return found;
}

// What a rank did, by when it began.
Row done_by(const std::vector<Span>& spans) {
  Row row;
  for (const Span& span : spans) {
    row.push_back(span.action);
  }
  return row;
}

// Some traced steps of a plan in order.
std::vector<StepTimeline> traced_steps(const Model& model,
                                       const Plan& plan,
                                       const Training& training) {
  const Batch batch = numbers(4 * kBatch);
  const TensorDataset data(batch.inputs, batch.targets, 0, "numbers");
  Trainer trainer(model, plan, test_devices(mesh_of(plan).ranks()), training);
  return trainer.fit(data, {.epochs = 1, .traced = 2}).timelines;
}

void expect_printed_rows(const Plan& plan,
                         const std::vector<StepTimeline>& steps) {
  ASSERT_EQ(steps.size(), 2u);
  const Mesh mesh = mesh_of(plan);
  for (const StepTimeline& step : steps) {
    for (Rank rank; rank.value < mesh.ranks(); ++rank.value) {
      const Row& printed = plan.schedule.rows[mesh.place_of(rank).value];
      const Row done = done_by(step.measured.rows[rank.value]);
      for (const Lane lane : {Lane::compute, Lane::network}) {
        EXPECT_EQ(to_text(of_lane(done, lane)), to_text(of_lane(printed, lane)))
            << "rank " << rank.value;
      }
    }
  }
}

Model tied_model() {
  Model model("tied", 5);
  model.add<torch::nn::Linear>("first", 6, 6);
  model.add<torch::nn::Tanh>("tanh");
  model.add<torch::nn::Linear>("second", 6, 6).shares("weight", "first.weight");
  model.add<torch::nn::Linear>("out", 6, 2);
  return model;
}

TEST(InOrder, every_rank_does_its_printed_row) {
  const Model model = tied_model();
  for (const auto& [schedule, per_device] : ways()) {
    for (const bool clips : {false, true}) {
      const std::vector<int> sizes =
          per_device == 2 ? std::vector{1, 1, 1, 1} : std::vector{2, 2};
      const Plan plan = with(
          plan_of(model, sizes, schedule, kMicrobatches, kBatch, per_device),
          {.clips = clips});
      SCOPED_TRACE(to_text(plan.schedule));
      expect_printed_rows(plan,
                          traced_steps(model,
                                       plan,
                                       {.loss = mean_squared_error(),
                                        .clip = clips ? 1.0 : 0}));
    }
  }
}

// Sums begin inside the last backward, or W, and yet in their order.
TEST(InOrder, also_with_replicas_and_sharded_states) {
  const Model model = tied_model();
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    for (const ShardStates states :
         {ShardStates::none, ShardStates::optimizer, ShardStates::gradients}) {
      for (const bool clips : {false, true}) {
        const Plan plan = with(plan_of(model, {2, 2}, schedule, 2, kBatch),
                               {2, states, clips});
        SCOPED_TRACE(to_text(plan.schedule));
        expect_printed_rows(plan,
                            traced_steps(model,
                                         plan,
                                         {.loss = mean_squared_error(),
                                          .clip = clips ? 1.0 : 0}));
      }
    }
  }
}

// The update of the second stage of rank 0, which comes first in its row, goes
// to the end; and a forward goes in front of the backward before it.
TEST(InOrder, a_schedule_edited_by_hand_runs_so_and_has_the_same_bits) {
  const Model model = tied_model();
  Plan plan =
      plan_of(model, {1, 1, 1, 1}, "interleaved", kMicrobatches, kBatch, 2);
  Row& row = plan.schedule.rows[0];
  const auto update = std::ranges::find(row, Action{Op::update, StageId{2}});
  ASSERT_NE(update, row.end() - 1);
  row.push_back(*update);
  row.erase(std::ranges::find(row, Action{Op::update, StageId{2}}));
  ASSERT_EQ(problems(plan.schedule), std::vector<Problem>());
  const Training training{.loss = mean_squared_error()};
  expect_printed_rows(plan, traced_steps(model, plan, training));
  const std::vector<Batch> batches = draw_batches(cases().back());
  Trainer trainer(model, plan, test_devices(2), training);
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  for (size_t step = 0; step < batches.size(); ++step) {
    ASSERT_EQ(trainer.step(batches[step]).loss, expected.losses[step]);
  }
  expect_same_bits(trainer.merged(), expected.state);
}

// Additions keep the printed order, and the record says which rank ran what.
TEST(Stealing, keeps_the_order_of_what_adds_to_the_same_gradients) {
  const Model model = tied_model();
  Plan plan = plan_of(model, {2, 2}, "gpipe", kMicrobatches, kBatch);
  plan.steals = true;
  for (const StepTimeline& step :
       traced_steps(model, plan, {.loss = mean_squared_error()})) {
    Row done;
    std::vector<Span> spans;
    for (const std::vector<Span>& row : step.measured.rows) {
      spans.insert(spans.end(), row.begin(), row.end());
    }
    std::ranges::stable_sort(spans, {}, &Span::start);
    for (StageId stage; stage.value < 2; ++stage.value) {
      int next = 0;
      for (const Span& span : spans) {
        if (span.action.op == Op::backward && span.action.stage == stage) {
          EXPECT_EQ(span.action.index, next++);
        }
      }
      EXPECT_EQ(next, kMicrobatches);
    }
  }
}

}  // namespace
}  // namespace cleave
