#include "cleave/plan/predict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/memory.h"
#include "cleave/schedule/simulate.h"
#include "tests/plan/profiles.h"

namespace cleave {
namespace {

// Two ranks; the first keeps two microbatches of 400 bytes, the second one.
Schedule two_ranks() {
  return complete(make_schedule("1f1b", {2, 1, 4}));
}

std::vector<StagePrediction> stages_that_keep(Bytes kept, Bytes fixed) {
  return std::vector<StagePrediction>(
      2, {.memory = {.kept = kept}, .fixed = fixed});
}

TEST(RowLimits, are_the_bounds_of_the_rows_in_order) {
  const auto stages = stages_that_keep({400}, {1000});
  const std::vector<PlannedDevice> devices(2);
  EXPECT_EQ(row_limits(two_ranks(), stages, devices, false),
            (std::vector<Bytes>{{800}, {400}}));
}

TEST(RowLimits, are_a_quarter_more_where_ranks_steal) {
  const auto stages = stages_that_keep({400}, {1000});
  const std::vector<PlannedDevice> devices(2);
  EXPECT_EQ(row_limits(two_ranks(), stages, devices, true),
            (std::vector<Bytes>{{1000}, {500}}));
}

TEST(RowLimits, stay_within_the_budgets) {
  const auto stages = stages_that_keep({400}, {1000});
  const std::vector<PlannedDevice> devices{{.memory = {1900}},
                                           {.memory = {5000}}};
  EXPECT_EQ(row_limits(two_ranks(), stages, devices, true),
            (std::vector<Bytes>{{900}, {500}}));
}

TEST(RowLimits, are_never_below_the_bounds_in_order) {
  const auto stages = stages_that_keep({400}, {1000});
  const std::vector<PlannedDevice> devices{{.memory = {1200}}, {.memory = {1}}};
  EXPECT_EQ(row_limits(two_ranks(), stages, devices, true),
            (std::vector<Bytes>{{800}, {400}}));
}

// A plan whose first stage keeps 100 bytes of a microbatch for its backward,
// and sends 60 of them to the second, which sends as many back.
Plan plan_with_messages(int replicas) {
  Plan plan{.batch = 8 * replicas, .replicas = replicas};
  plan.devices.resize(2);
  plan.stages.resize(2);
  plan.schedule = two_ranks();
  std::vector<StagePrediction> stages = stages_that_keep({100}, {});
  stages[0].memory.forward_need = {50};
  stages[1].memory.returning = {60};
  plan.prediction = predict(plan, stages);
  return plan;
}

TEST(Prediction, as_much_is_evaluated_at_once_as_needs_no_more_memory) {
  // Two microbatches are kept, and perhaps their messages; the messages of
  // three of four microbatches need less.
  Plan plan = plan_with_messages(1);
  EXPECT_EQ(plan.prediction->peaks[0], Bytes{200});
  EXPECT_EQ(evaluation_batch(plan), 6);
  EXPECT_EQ(evaluation_batch(plan_with_messages(3)), 18);
  plan.prediction->stages[1].memory.returning = {50};
  EXPECT_EQ(evaluation_batch(plan), 8);
  plan.prediction->stages[1].memory.returning = {1000};
  EXPECT_EQ(evaluation_batch(plan), 2);
  plan.prediction.reset();
  EXPECT_EQ(evaluation_batch(plan), 8);
}

TEST(Prediction, counts_the_evaluation_of_a_microbatch) {
  Plan plan = plan_with_messages(1);
  std::vector<StagePrediction> stages = plan.prediction->stages;
  stages[1].memory.returning = {1000};
  // Training needs less: nothing says that what comes back was sent.
  EXPECT_EQ(predict(plan, stages).peaks[0], Bytes{1000});
}

TEST(Prediction, is_refused_where_it_is_of_other_stages_or_too_large) {
  const Plan plan = plan_with_messages(1);
  std::vector<StagePrediction> stages = plan.prediction->stages;
  stages.pop_back();
  EXPECT_EQ(error_of([&] { predict(plan, stages); }),
            "the plan's prediction is of other stages. Delete the prediction: "
            "a plan runs without.");
  stages = plan.prediction->stages;
  stages[0].memory.kept = {INT64_MAX};
  EXPECT_EQ(error_of([&] { predict(plan, stages); }),
            "the plan's prediction has times or bytes that are too large. "
            "Delete the prediction: a plan runs without.");
}

TEST(Prediction, is_of_the_plan_with_what_is_fixed) {
  const Profile profile = blocks_and_head(2, {1000});
  const Plan plan =
      make_plan(profile, devices(3), {{.batch = 12}, {.schedule = "1f1b"}});
  ASSERT_TRUE(plan.steals);
  const Prediction& found = *plan.prediction;
  std::vector<Bytes> peaks =
      row_limits(plan.schedule, found.stages, plan.devices, plan.steals);
  const std::vector<Bytes> fixed =
      fixed_bytes(placement_of(plan), found.stages, plan.devices.size());
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    peaks[rank] += fixed[rank];
  }
  EXPECT_EQ(found.peaks, peaks);
  EXPECT_EQ(predict(plan, found.stages), found);
  EXPECT_NEAR(
      found.step.value, period(plan.schedule, costs_of(plan)).value, 1e-12);
  EXPECT_GE(predicted_timeline(plan).length, found.step);
}

TEST(Prediction, without_one_the_stages_are_taken_to_be_even) {
  Plan plan = make_plan(profile_of({0.001, 0.001}),
                        devices(2),
                        {{.batch = 4}, {.stages = 2, .schedule = "1f1b"}});
  plan.prediction.reset();
  const ScheduleCosts costs = costs_of(plan);
  ASSERT_EQ(costs.stages.size(), 2U);
  EXPECT_EQ(costs.stages[0], costs.stages[1]);
  EXPECT_GT(predicted_timeline(plan).length, Seconds{});
}

// peaks() of the plan's own schedule, messages in flight included.
void expect_fits(const Plan& plan, Bytes budget) {
  const std::vector<StagePrediction>& stages = plan.prediction->stages;
  const std::vector<Bytes> needed =
      peak_bytes(plan.schedule, memory_of(stages));
  const std::vector<Bytes> fixed =
      fixed_bytes(placement_of(plan), stages, plan.devices.size());
  for (std::size_t rank = 0; rank < needed.size(); ++rank) {
    EXPECT_LE(needed[rank] + fixed[rank], budget) << "rank " << rank;
    EXPECT_LE(plan.prediction->peaks[rank], budget) << "rank " << rank;
    EXPECT_GE(plan.prediction->peaks[rank], needed[rank] + fixed[rank]);
  }
}

// Whether it is what a generator makes for as many ranks and stages.
bool is_generated(const Plan& plan) {
  const auto ranks = static_cast<int>(plan.devices.size());
  const auto stages = static_cast<int>(plan.stages.size());
  return std::ranges::any_of(kSchedules, [&](const ScheduleKind& kind) {
    const bool fits =
        stages % ranks == 0 && (kind.stages_per_rank == kAnyNumber ||
                                kind.stages_per_rank == stages / ranks);
    return fits &&
           make_schedule(kind.name,
                         {ranks, stages / ranks, plan.schedule.microbatches}) ==
               passes_of(plan.schedule);
  });
}

// The least of these budgets are little more than what has to be.
TEST(Prediction, searched_schedules_fit_the_budgets_with_messages_in_flight) {
  Profile profile = blocks_and_head(4, {1'000'000});
  for (LayerCost& layer : profile.layers) {
    layer.crossing = {300'000};
    layer.loose = {200'000};
  }
  int searched = 0;
  for (const std::int64_t megabytes :
       {60, 40, 35, 30, 26, 24, 22, 20, 18, 17}) {
    const Bytes budget{megabytes * 1'000'000};
    for (const bool steals : {false, true}) {
      const Plan plan =
          make_plan(profile,
                    devices(4, budget),
                    {{.batch = 16}, {.microbatches = 8, .steals = steals}});
      check_plan(plan, layers_of(profile));
      expect_fits(plan, budget);
      searched += is_generated(plan) ? 0 : 1;
    }
  }
  EXPECT_GE(searched, 10);
}

}  // namespace
}  // namespace cleave
