#include "cleave/plan/runner.h"

#include <gtest/gtest.h>

#include "tests/plan/profiles.h"

namespace cleave {
namespace {

// So many devices, with a stage each whose F and B take that long on the mean.
std::string why(int devices,
                int replicas,
                Seconds action,
                bool shares_cores,
                const PlanRequest& request = {}) {
  Plan plan{.replicas = replicas};
  plan.devices.resize(devices);
  plan.stages.resize(devices);
  const std::vector<StagePrediction> stages(
      devices, {.cost = {.forward = action, .backward = action}});
  return why_in_order(plan, stages, request, shares_cores);
}

TEST(Runner, ranks_that_may_steal_have_no_reason_not_to) {
  EXPECT_EQ(why(2, 1, {0.001}, false), "");
}

TEST(Runner, says_why_ranks_work_in_order) {
  EXPECT_EQ(why(1, 1, {0.001}, false), "there is one device");
  EXPECT_EQ(why(2, 2, {0.001}, false), "replicas sum gradients in one order");
  EXPECT_EQ(why(2, 1, {0.001}, true), "devices share cores");
  EXPECT_EQ(why(2, 1, {0.0001}, false), "actions are too short");
  EXPECT_EQ(why(2, 1, {0.001}, false, {.steals = false}), "stealing is off");
  EXPECT_EQ(why(2, 1, {0.001}, false, {.ranks_are_processes = true}),
            "ranks are processes");
}

TEST(Runner, the_weight_gradients_count_as_part_of_the_backward) {
  Plan plan;
  plan.devices.resize(2);
  plan.stages.resize(2);
  const std::vector<StagePrediction> stages(
      2,
      {.cost = {
           .forward = {0.0001}, .backward = {0.0001}, .weight = {0.0001}}});
  EXPECT_EQ(why_in_order(plan, stages, {}, false), "");
}

bool steals(int count, const PlanRequest& request, double layer = 0.001) {
  const Profile profile = profile_of(std::vector<double>(4, layer));
  const Plan plan = make_plan(profile, devices(count), request);
  check_plan(plan, layers_of(profile));
  return plan.steals;
}

TEST(Runner, a_plan_says_whether_its_ranks_steal) {
  const PlanRequest request{.batch = 8, .stages = 2, .schedule = "1f1b"};
  EXPECT_TRUE(steals(2, request));
  EXPECT_FALSE(steals(2, request, 1e-6));
  EXPECT_FALSE(steals(1, {.batch = 8, .stages = 1, .schedule = "1f1b"}));
  PlanRequest in_order = request;
  in_order.steals = false;
  EXPECT_FALSE(steals(2, in_order));
  PlanRequest replicated = request;
  replicated.replicas = 2;
  EXPECT_FALSE(steals(4, replicated));
}

}  // namespace
}  // namespace cleave
