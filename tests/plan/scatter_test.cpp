#include "cleave/plan/scatter.h"

#include <gtest/gtest.h>

#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/search/search.h"

namespace cleave {
namespace {

// Blocks of a lighter and a heavier layer with nothing between them, and a head
// that is heavier still: no cut of the chain into eight is even.
Profile blocks_and_head(int blocks, Bytes activations = {}) {
  Profile profile{.model = "blocks", .microbatch = 1};
  const auto add = [&](const std::string& name, double unit) {
    profile.layers.push_back({.name = name,
                              .forward = {unit * 0.001},
                              .backward = {unit * 0.001},
                              .weight = {unit * 0.001},
                              .update = {1e-5},
                              .parameters = {1000},
                              .activations = activations,
                              .kept_for_weights = {activations.value / 2},
                              .crossing = {100}});
  };
  add("embedding", 0.01);
  for (int i = 0; i < blocks; ++i) {
    add("attention." + std::to_string(i), 5.5);
    add("sum." + std::to_string(i), 0.01);
    add("mlp." + std::to_string(i), 8);
  }
  add("head", 18);
  return profile;
}

std::vector<DeviceSpec> some_devices(int count, Bytes memory = {}) {
  std::vector<DeviceSpec> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back({.name = "cpu:" + std::to_string(i), .memory = memory});
  }
  return devices;
}

std::vector<std::string> names_of(const Profile& profile) {
  std::vector<std::string> names;
  for (const LayerCost& layer : profile.layers) {
    names.push_back(layer.name);
  }
  return names;
}

TEST(Scatter, is_faster_than_any_one_stage_per_device) {
  const Profile profile = blocks_and_head(8);
  PlanRequest request{.batch = 32, .microbatches = 32, .schedule = "auto"};
  const Plan scattered = make_plan(profile, some_devices(8), request);
  request.stages_per_device = 1;
  const Plan chain = make_plan(profile, some_devices(8), request);
  check_plan(scattered, names_of(profile));
  EXPECT_EQ(rank_count(scattered), 8);
  EXPECT_GT(scattered.stages.size(), 8U);
  EXPECT_LT(scattered.step, 0.9 * chain.step);
  // The head alone is the bound, and it is nearly reached.
  EXPECT_LT(scattered.step, 1.02 * 32 * Seconds{3 * 0.018});
}

// In order it gains less than would be worth it; but where devices are unsteady
// and lend, it gains more.
TEST(Scatter, is_judged_by_how_it_will_run) {
  Profile profile{.model = "even",
                  .microbatch = 1,
                  .spread = 0.1,
                  .uneven = 0.05,
                  .moving = 0.02};
  for (int i = 0; i < 8; ++i) {
    const double unit = i == 0 ? 2.3 : 1;
    profile.layers.push_back({.name = std::to_string(i),
                              .forward = {unit * 0.001},
                              .backward = {unit * 0.001},
                              .weight = {unit * 0.001},
                              .update = {0.001},
                              .parameters = {1000},
                              .crossing = {100}});
  }
  PlanRequest request{.batch = 4, .microbatches = 4, .schedule = "auto"};
  const Plan plan = make_plan(profile, some_devices(2), request);
  request.stages_per_device = 1;
  const Plan chain = make_plan(profile, some_devices(2), request);
  EXPECT_GT(plan.stages.size(), 2U);
  EXPECT_LT(plan.step, 0.97 * chain.step);
}

TEST(Scatter, gives_the_same_plan_every_time) {
  const PlanRequest request{.batch = 16, .microbatches = 8, .schedule = "auto"};
  EXPECT_EQ(make_plan(blocks_and_head(4), some_devices(4), request),
            make_plan(blocks_and_head(4), some_devices(4), request));
}

TEST(Scatter, keeps_to_the_memory_of_every_device) {
  const Profile profile = blocks_and_head(4, {1'000'000});
  const Bytes budget{22'000'000};
  const Plan plan =
      make_plan(profile,
                some_devices(4, budget),
                {.batch = 16, .microbatches = 16, .schedule = "auto"});
  check_plan(plan, names_of(profile));
  for (const StagePlan& stage : plan.stages) {
    EXPECT_LE(stage.peak, budget);
  }
  // What the plan promises holds for the schedule that will run.
  const Schedule schedule = schedule_of(plan, plan.microbatches);
  const SearchProblem problem = search_problem_of(plan, plan.microbatches);
  const std::vector<Bytes> peaks = peak_bytes(schedule, problem.memory);
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    EXPECT_LE(peaks[rank], problem.limits[rank]);
  }
}

TEST(Scatter, leaves_alone_what_cannot_be_moved) {
  const Profile profile = blocks_and_head(1);
  const PlanRequest request{.batch = 8, .microbatches = 8, .schedule = "auto"};
  const std::vector<DeviceSpec> one = some_devices(1);
  const Plan start = make_plan(profile, one, request);
  EXPECT_FALSE(scattered(PlanBasis(profile, request, 1), one, start));
}

TEST(PlanSchedule, ranks_are_devices_in_the_order_of_the_stages) {
  Plan plan{.model = "net"};
  for (const char* device : {"cpu:2", "cpu:0", "cpu:2", "cpu:1"}) {
    plan.stages.push_back({.device = device, .layers = {"a"}});
  }
  EXPECT_EQ(placement_of(plan), (std::vector<Rank>{{0}, {1}, {0}, {2}}));
  EXPECT_EQ(rank_count(plan), 3);
}

TEST(PlanSchedule, a_searched_schedule_is_the_same_whenever_it_is_asked_for) {
  const Plan plan =
      make_plan(blocks_and_head(3),
                some_devices(3),
                {.batch = 12, .microbatches = 6, .schedule = "auto"});
  const Plan read = parse_plan(to_json(plan), "plan.json");
  EXPECT_EQ(schedule_of(read, 6), schedule_of(plan, 6));
  EXPECT_EQ(schedule_of(read, 2).microbatches, 2);
}

}  // namespace
}  // namespace cleave
