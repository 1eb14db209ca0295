#include "cleave/plan/runner.h"

#include <gtest/gtest.h>

#include "tests/plan/profiles.h"

namespace cleave {
namespace {

std::string why(int devices, int replicas, const RunnerFacts& facts = {}) {
  Plan plan{.replicas = replicas};
  plan.devices.resize(devices);
  return why_in_order(plan, facts);
}

TEST(Runner, ranks_that_may_steal_have_no_reason_not_to) {
  EXPECT_EQ(why(2, 1), "");
  EXPECT_EQ(why(2, 1, {.action = {0.001}}), "");
}

TEST(Runner, says_why_ranks_work_in_order) {
  EXPECT_EQ(why(1, 1), "there is one device");
  EXPECT_EQ(why(2, 2), "replicas sum gradients in one order");
  EXPECT_EQ(why(1, 2), "replicas sum gradients in one order");
  EXPECT_EQ(why(2, 1, {.shares_cores = true}), "devices share cores");
  EXPECT_EQ(why(2, 1, {.action = {0.0001}}), "actions are too short");
  EXPECT_EQ(why(2, 1, {.wants_stealing = false}), "stealing is off");
  EXPECT_EQ(why(2, 1, {.ranks_are_processes = true}), "ranks are processes");
}

TEST(Runner, the_weight_gradients_count_as_part_of_the_backward) {
  const std::vector<StagePrediction> stages(
      2,
      {.cost = {
           .forward = {0.0001}, .backward = {0.0001}, .weight = {0.0001}}});
  EXPECT_DOUBLE_EQ(mean_action(stages).value, 0.00015);
}

// As when a saved plan is run by processes.
TEST(Runner, a_plan_that_cannot_steal_says_so_and_predicts_it) {
  const Profile profile = blocks_and_head(2, {1000});
  const Plan plan =
      make_plan(profile, devices(3), {{.batch = 12}, {.schedule = "1f1b"}});
  ASSERT_TRUE(plan.steals);
  EXPECT_EQ(with_runner(plan, {}), plan);
  const Plan in_order = with_runner(plan, {.ranks_are_processes = true});
  EXPECT_FALSE(in_order.steals);
  EXPECT_EQ(in_order.in_order_because, "ranks are processes");
  EXPECT_LT(in_order.prediction->peaks[0], plan.prediction->peaks[0]);
  EXPECT_EQ(with_runner(in_order, {.wants_stealing = false}), in_order);
}

bool steals(int count, const PlanTask& request, double layer = 0.001) {
  const Profile profile = profile_of(std::vector<double>(4, layer));
  const Plan plan = make_plan(profile, devices(count), request);
  check_plan(plan, layers_of(profile));
  return plan.steals;
}

TEST(Runner, a_plan_says_whether_its_ranks_steal) {
  const PlanTask request{{.batch = 8}, {.stages = 2, .schedule = "1f1b"}};
  EXPECT_TRUE(steals(2, request));
  EXPECT_FALSE(steals(2, request, 1e-6));
  EXPECT_FALSE(steals(1, {{.batch = 8}, {.stages = 1, .schedule = "1f1b"}}));
  PlanTask in_order = request;
  in_order.steals = false;
  EXPECT_FALSE(steals(2, in_order));
  PlanTask replicated = request;
  replicated.replicas = 2;
  EXPECT_FALSE(steals(4, replicated));
}

}  // namespace
}  // namespace cleave
