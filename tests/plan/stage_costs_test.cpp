#include "cleave/plan/stage_costs.h"

#include <gtest/gtest.h>

#include "tests/plan/profiles.h"

namespace cleave {
namespace {

using Buckets = std::vector<std::vector<std::string>>;

// Layers "0", "1", … with parameters of these sizes.
Profile profile_with(const std::vector<std::int64_t>& parameters) {
  Profile profile = profile_of(std::vector<double>(parameters.size(), 0.001));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    profile.layers[i].parameters = {parameters[i]};
  }
  return profile;
}

TEST(Buckets, are_runs_from_the_last_layer_to_the_first) {
  const Profile profile = profile_with({10, 10, 10, 10, 10});
  EXPECT_EQ(buckets_of(profile, 0, 5, {20}),
            (Buckets{{"4", "3"}, {"2", "1"}, {"0"}}));
  EXPECT_EQ(buckets_of(profile, 1, 4, {20}), (Buckets{{"3", "2"}, {"1"}}));
  EXPECT_EQ(buckets_of(profile, 0, 5, {1000}),
            (Buckets{{"4", "3", "2", "1", "0"}}));
}

TEST(Buckets, hold_at_least_their_size_but_the_last) {
  EXPECT_EQ(buckets_of(profile_with({5, 30, 1, 19, 1}), 0, 5, {20}),
            (Buckets{{"4", "3"}, {"2", "1"}, {"0"}}));
  EXPECT_EQ(buckets_of(profile_with({5, 30, 1}), 0, 3, {}),
            (Buckets{{"2"}, {"1"}, {"0"}}));
}

TEST(Buckets, hold_no_layer_without_parameters) {
  EXPECT_EQ(buckets_of(profile_with({10, 0, 10, 0}), 0, 4, {10}),
            (Buckets{{"2"}, {"0"}}));
  EXPECT_EQ(buckets_of(profile_with({0, 0}), 0, 2, {10}), Buckets{{}});
}

TEST(Buckets, are_those_of_the_stages_of_a_plan_with_replicas) {
  const Profile profile = profile_with({10, 10, 10, 10});
  const PlanTask request{{.batch = 8, .bucket = {10}},
                         {.stages = 2, .replicas = 2, .schedule = "1f1b"}};
  const Plan plan = make_plan(profile, devices(4), request);
  EXPECT_EQ(plan.stages[0].buckets, (Buckets{{"1"}, {"0"}}));
  EXPECT_EQ(plan.stages[1].buckets, (Buckets{{"3"}, {"2"}}));
  EXPECT_EQ(plan.schedule.synchronisation.buckets, (std::vector{2, 2}));
  PlanTask alone = request;
  alone.replicas = 1;
  const Plan one = make_plan(profile, devices(2), alone);
  EXPECT_TRUE(one.stages[0].buckets.empty());
  EXPECT_FALSE(one.schedule.synchronisation.mirrored());
}

TEST(StageCosts, a_sum_over_replicas_takes_its_share_of_the_stage) {
  Profile profile = profile_with({1'000'000, 1'000'000});
  const PlanTask request{
      {.batch = 8, .bucket = {1'000'000}, .messages = {.sum_bandwidth = 1e9}},
      {.replicas = 2}};
  const ScaledRequest scaled(profile, request, 4);
  // Half of 2 MB there and back, in two buckets.
  EXPECT_EQ(stage_cost(scaled, {}, 0, 2).cost.reduce, Seconds{0.001});
  PlanTask sharded = request;
  sharded.shard_states = ShardStates::gradients;
  // After every microbatch.
  EXPECT_EQ(stage_cost({profile, sharded, 4}, {}, 0, 2).cost.reduce,
            Seconds{0.0005});
  PlanTask alone = request;
  alone.replicas = 1;
  EXPECT_EQ(stage_cost({profile, alone, 4}, {}, 0, 2).cost.reduce, Seconds{});
}

}  // namespace
}  // namespace cleave
