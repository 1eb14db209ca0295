#include "cleave/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "cleave/plan/make_plan.h"
#include "cleave/plan/predict.h"
#include "cleave/schedule/memory.h"
#include "cleave/schedule/order.h"
#include "tests/plan/profiles.h"

namespace cleave {
namespace {

std::vector<int> layer_counts(const Plan& plan) {
  std::vector<int> counts;
  for (const StagePlan& stage : plan.stages) {
    counts.push_back(static_cast<int>(stage.layers.size()));
  }
  return counts;
}

const StageCost& cost_of(const Plan& plan, int stage) {
  return plan.prediction->stages.at(stage).cost;
}

Bytes peak_of(const Plan& plan, int rank) {
  return plan.prediction->peaks.at(rank);
}

std::string plan_error(const Profile& profile,
                       const std::vector<DeviceSpec>& on,
                       const PlanTask& request) {
  return error_of([&] { make_plan(profile, on, request); });
}

TEST(MakePlan, what_a_stage_takes_for_itself_counts_once_per_stage) {
  Profile profile = profile_of(std::vector<double>(8, 0.001));
  profile.overhead = {{0.0001}, {0.0002}, {0.0003}, {0.0004}};
  profile.layers[0].weight = {0.005};
  profile.layers[0].update = {0.006};
  const Plan plan = make_plan(
      profile, devices(2), {{.batch = 4}, {.stages = 2, .schedule = "1f1b"}});
  const auto layers = static_cast<double>(plan.stages[1].layers.size());
  EXPECT_DOUBLE_EQ(cost_of(plan, 1).forward.value, 0.001 * layers + 0.0001);
  EXPECT_DOUBLE_EQ(cost_of(plan, 1).backward.value, 0.002 * layers + 0.0002);
  EXPECT_DOUBLE_EQ(cost_of(plan, 0).weight.value, 0.0053);
  EXPECT_DOUBLE_EQ(cost_of(plan, 0).update.value, 0.0064);
  // Where there is nothing to do for weights, nothing is done.
  EXPECT_EQ(cost_of(plan, 1).weight.value, 0);
  EXPECT_EQ(cost_of(plan, 1).update.value, 0);
  profile.overhead.backward = {-1};
  EXPECT_EQ(plan_error(profile, devices(2), {{.batch = 4}, {}}),
            "the overhead of the profile is below zero, or no number. Profile "
            "the model again.");
}

TEST(MakePlan, devices_steal_work_unless_told_not_to) {
  const Profile profile = profile_of(std::vector<double>(8, 0.001));
  PlanTask request{{.batch = 8}, {.stages = 2, .schedule = "zb-h2"}};
  const Plan stealing = make_plan(profile, devices(2), request);
  EXPECT_TRUE(stealing.steals);
  request.steals = false;
  const Plan alone = make_plan(profile, devices(2), request);
  EXPECT_FALSE(alone.steals);
  EXPECT_EQ(alone.schedule, stealing.schedule);
}

TEST(MakePlan, predicts_the_closed_form_for_even_stages) {
  const Profile profile = profile_of(std::vector<double>(8, 0.001));
  for (const char* schedule : {"1f1b", "gpipe"}) {
    const Plan plan = make_plan(profile,
                                devices(4),
                                {{.batch = 6, .messages = {.latency = {}}},
                                 {.stages = 4,
                                  .microbatches = 6,
                                  .schedule = schedule,
                                  .steals = false}});
    EXPECT_EQ(layer_counts(plan), (std::vector<int>{2, 2, 2, 2}));
    EXPECT_EQ(cost_of(plan, 0).forward, Seconds{0.002});
    EXPECT_EQ(cost_of(plan, 0).backward, Seconds{0.004});
    // (microbatches + stages - 1) times forward and backward of a stage.
    EXPECT_EQ(plan.prediction->step, Seconds{0.054});
    EXPECT_NEAR(plan.prediction->bubble, 3.0 / 9.0, 1e-12);
  }
}

TEST(MakePlan, one_stage_has_no_bubble) {
  const Plan plan = make_plan(
      profile_of({0.001, 0.002}), devices(1), {{.batch = 8}, {.stages = 1}});
  EXPECT_EQ(plan.schedule.microbatches, 4);
  EXPECT_EQ(plan.prediction->step,
            Seconds{0.072});  // 8 samples, 3 ms forward, 6 backward
  EXPECT_NEAR(plan.prediction->bubble, 0, 1e-12);
  EXPECT_EQ(plan.model, "net");
  EXPECT_EQ(plan.stages[0].rank, Rank{0});
  EXPECT_EQ(plan.devices.at(0).name, "cpu:0");
  EXPECT_EQ(plan.stages[0].layers, (std::vector<std::string>{"0", "1"}));
}

TEST(MakePlan, messages_count_on_the_way_there_and_back) {
  Profile profile = profile_of({0.001, 0.001});
  profile.layers[0].crossing = {1000};
  const Plan plan = make_plan(
      profile,
      devices(2),
      {{.batch = 1, .messages = {.latency = {0.001}, .bandwidth = 1e6}},
       {.stages = 2, .microbatches = 1, .schedule = "1f1b"}});
  // Two stages of 3 ms in a row; each way 1 ms and 1000 bytes at 1 MB/s.
  EXPECT_EQ(plan.prediction->step, Seconds{0.010});
}

TEST(MakePlan, uses_all_devices_when_that_pays) {
  const Plan plan = make_plan(profile_of(std::vector<double>(8, 0.01)),
                              devices(4),
                              {{.batch = 32}, {.schedule = "1f1b"}});
  EXPECT_EQ(plan.stages.size(), 4U);
  EXPECT_EQ(plan.schedule.microbatches, 16);
}

TEST(MakePlan, takes_fewer_stages_when_more_do_not_pay) {
  // The first layer is the bottleneck however the others are cut.
  const Plan heavy = make_plan(profile_of({0.010, 0.001, 0.001}),
                               devices(3),
                               {{.batch = 8}, {.microbatches = 8}});
  EXPECT_EQ(layer_counts(heavy), (std::vector<int>{1, 2}));
  // Layers so small that the messages cost more than the second device saves.
  const Plan small = make_plan(profile_of({1e-6, 1e-6}),
                               devices(2),
                               {{.batch = 4}, {.microbatches = 4}});
  EXPECT_EQ(small.stages.size(), 1U);
}

TEST(MakePlan, takes_fewer_stages_when_more_pay_less_than_a_percent) {
  const PlanTask request{{.batch = 8, .messages = {.latency = {}}},
                         {.microbatches = 8}};
  const auto stages = [&](double second) {
    return make_plan(profile_of({0.1, second}), devices(2), request)
        .stages.size();
  };
  EXPECT_EQ(stages(0.0005), 1U);
  EXPECT_EQ(stages(0.002), 2U);
}

TEST(MakePlan, cuts_where_little_crosses) {
  Profile profile = profile_of({0.001, 0.001, 0.001, 0.001});
  const PlanTask request{{.batch = 8, .messages = {.bandwidth = 1e6}},
                         {.stages = 2, .microbatches = 8, .schedule = "1f1b"}};
  EXPECT_EQ(layer_counts(make_plan(profile, devices(2), request)),
            (std::vector<int>{2, 2}));
  profile.layers[1].crossing = {3000};  // 3 ms there and 3 back
  EXPECT_EQ(layer_counts(make_plan(profile, devices(2), request)),
            (std::vector<int>{3, 1}));
}

TEST(MakePlan, never_makes_more_stages_than_layers_on_its_own) {
  const Plan plan =
      make_plan(profile_of({0.01, 0.01}), devices(5), {{.batch = 64}, {}});
  EXPECT_EQ(plan.stages.size(), 2U);
}

TEST(MakePlan, gives_the_stages_of_a_heavy_embedding_and_head_fewer_blocks) {
  // Equal counts of layers would take 11 ms in the last stage.
  std::vector<double> times(14, 0.002);
  times.front() = 0.003;
  times.back() = 0.007;
  const Plan plan =
      make_plan(profile_of(times), devices(4), {{.batch = 16}, {.stages = 4}});
  EXPECT_EQ(layer_counts(plan), (std::vector<int>{4, 4, 4, 2}));
  for (const StagePrediction& stage : plan.prediction->stages) {
    EXPECT_LE(stage.cost.forward, Seconds{0.009});
  }
}

TEST(MakePlan, a_faster_device_gets_more_layers) {
  std::vector<DeviceSpec> unequal = devices(2);
  unequal[0].speed = 3;
  const Plan plan = make_plan(profile_of(std::vector<double>(8, 0.003)),
                              unequal,
                              {{.batch = 8}, {.stages = 2, .microbatches = 8}});
  EXPECT_EQ(layer_counts(plan), (std::vector<int>{6, 2}));
  EXPECT_EQ(cost_of(plan, 0).forward, Seconds{0.006});
  EXPECT_EQ(cost_of(plan, 1).forward, Seconds{0.006});
}

// Device i on core i modulo 2.
std::vector<DeviceSpec> on_two_cores(int count) {
  std::vector<DeviceSpec> result = devices(count);
  for (int i = 0; i < count; ++i) {
    result[i].core = i % 2;
  }
  return result;
}

TEST(MakePlan, takes_no_more_devices_than_there_are_cores) {
  const Profile profile = profile_of(std::vector<double>(8, 0.003));
  const PlanTask request{{.batch = 8}, {.microbatches = 8}};
  const Plan two = make_plan(profile, devices(2), request);
  const Plan plan = make_plan(profile, on_two_cores(6), request);
  EXPECT_EQ(plan.devices.size(), 2U);
  EXPECT_NEAR(plan.prediction->step / two.prediction->step, 1, 0.03);
  EXPECT_TRUE(plan.steals);
}

TEST(MakePlan, devices_that_share_cores_are_no_faster_than_the_cores) {
  const Profile profile = profile_of(std::vector<double>(8, 0.003));
  const Plan plan = make_plan(
      profile,
      on_two_cores(4),
      {{.batch = 8}, {.stages = 4, .microbatches = 8, .schedule = "zb-h1"}});
  EXPECT_EQ(cost_of(plan, 2).forward, Seconds{0.012});  // beside another
  EXPECT_FALSE(plan.steals);
  const double least = 8 * 8 * 0.009 / 2;
  EXPECT_GT(plan.prediction->step.value, 0.95 * least);
  EXPECT_LT(plan.prediction->step.value, 1.4 * least);
}

TEST(MakePlan, devices_of_other_replicas_take_their_share_of_cores) {
  const Plan plan = make_plan(
      profile_of({0.003, 0.003}),
      on_two_cores(4),
      {{.batch = 8},
       {.stages = 2, .replicas = 2, .microbatches = 4, .schedule = "1f1b"}});
  EXPECT_EQ(cost_of(plan, 1).forward, Seconds{0.006});
}

TEST(MakePlan, counts_states_activations_in_flight_and_the_working_set) {
  Profile profile = profile_of({0.001, 0.001, 0.001});
  for (LayerCost& layer : profile.layers) {
    layer.parameters = {100};
    layer.activations = {20};
    layer.crossing = {7};
    layer.loose = {5};
    layer.working = {30};
  }
  profile.layers[1].activations = {50};
  profile.layers[2].loose = {};  // nothing leaves it
  const Plan plan = make_plan(
      profile,
      devices(3),
      {{.batch = 8, .state_copies = 1},
       {.stages = 3, .microbatches = 8, .schedule = "1f1b", .steals = false}});
  // 1f1b holds 3, 2 and 1 microbatches, with what the stage was given and
  // without the 5 that leave it. The last of them computes with its 5. Messages
  // wait to be taken: of the first stage two, of the second one each way, where
  // a gradient is 7 and what was given but is kept 2. Parameters are there
  // three times.
  EXPECT_EQ(peak_of(plan, 0), Bytes{300 + 3 * (20 - 5) + 5 + 30 + 2 * 5});
  EXPECT_EQ(peak_of(plan, 1),
            Bytes{300 + 2 * (7 + 50 - 5) + 5 + 30 + 5 + 7 + 2});
  EXPECT_EQ(peak_of(plan, 2), Bytes{300 + 1 * (7 + 20) + 30 + 7 + 2});
  EXPECT_EQ(plan.prediction->stages[1].parameters, Bytes{100});
}

TEST(MakePlan, a_backward_needs_less_where_layers_behind_have_let_go) {
  Profile profile = profile_of({0.001, 0.001, 0.001});
  for (LayerCost& layer : profile.layers) {
    layer.parameters = {100};
    layer.activations = {20};
    layer.kept_for_weights = {25};
    layer.backward_need = {30};
    layer.whole_need = {40};
    layer.weight_need = {50};
  }
  profile.layers[0].whole_need = {90};
  profile.layers[1].loose = {20};  // the next one keeps it
  const Plan plan = make_plan(profile, devices(1), {{.batch = 1}, {}});
  ASSERT_EQ(plan.stages.size(), 1U);
  const StageBytes& stage = plan.prediction->stages[0].memory;
  EXPECT_EQ(stage.backward_need, Bytes{30 + 2 * 25 - 40 - 0});
  EXPECT_EQ(stage.whole_need, Bytes{90 - 40 - 0});
  EXPECT_EQ(stage.weight_need, Bytes{50});
}

TEST(MakePlan, costs_grow_with_the_samples_of_a_microbatch) {
  Profile profile = profile_of({0.004, 0.004});
  profile.microbatch = 4;
  for (LayerCost& layer : profile.layers) {
    layer.activations = {40};
    layer.crossing = {4};
  }
  PlanTask request{{.batch = 16},
                   {.stages = 2, .microbatches = 8, .steals = false}};
  EXPECT_EQ(cost_of(make_plan(profile, devices(2), request), 1).forward,
            Seconds{0.002});
  EXPECT_EQ(peak_of(make_plan(profile, devices(2), request), 1),
            Bytes{2 + 20 + 2 * (2 + 2)});  // two gradients may wait
  // Microbatches of 2 and 3 samples: the mean time, the largest memory.
  request.batch = 20;
  EXPECT_EQ(cost_of(make_plan(profile, devices(2), request), 1).forward,
            Seconds{0.0025});
  EXPECT_EQ(peak_of(make_plan(profile, devices(2), request), 1),
            Bytes{3 + 30 + 2 * (3 + 3)});
}

TEST(MakePlan, a_budget_can_force_more_stages) {
  Profile profile = profile_of({1e-6, 1e-6});  // too small to be worth a cut
  for (LayerCost& layer : profile.layers) {
    layer.parameters = {1000};
  }
  EXPECT_EQ(make_plan(profile, devices(2), {{.batch = 4}, {}}).stages.size(),
            1U);
  EXPECT_EQ(
      make_plan(profile, devices(2, {5000}), {{.batch = 4}, {}}).stages.size(),
      2U);
}

TEST(MakePlan, replicas_divide_devices_and_batch) {
  Profile profile = profile_of(std::vector<double>(4, 0.01));
  for (LayerCost& layer : profile.layers) {
    layer.parameters = {1'000'000};
  }
  const Plan plan = make_plan(
      profile,
      devices(4),
      {{.batch = 16, .messages = {.latency = {}, .sum_bandwidth = 1e9}},
       {.stages = 2, .replicas = 2, .microbatches = 4, .schedule = "1f1b"}});
  EXPECT_EQ(plan.replicas, 2);
  EXPECT_EQ(plan.batch, 16);
  EXPECT_EQ(layer_counts(plan), (std::vector<int>{2, 2}));
  // Microbatches of two samples: (4 + 1) times two layers of 60 ms; and
  // half of 2 MB there and back.
  EXPECT_NEAR(plan.prediction->step.value, 0.6 + 0.002, 1e-9);
}

TEST(MakePlan, chooses_replicas_against_stages_by_predicted_time) {
  // A layer that cannot be cut, and next to nothing to add up: copies.
  Profile profile = profile_of({0.1, 0.001});
  const PlanTask request{
      {.batch = 16}, {.replicas = 0, .microbatches = 4, .schedule = "1f1b"}};
  EXPECT_EQ(make_plan(profile, devices(2), request).replicas, 2);
  // Equal layers with many parameters: stages.
  Profile even = profile_of({0.01, 0.01});
  even.layers[0].parameters = even.layers[1].parameters = {4LL << 30};
  EXPECT_EQ(make_plan(even, devices(2), request).replicas, 1);
}

TEST(MakePlan, replicas_have_a_sample_for_every_microbatch) {
  const Profile profile = profile_of({0.1, 0.001});
  const PlanTask request{{.batch = 6}, {.replicas = 0, .microbatches = 4}};
  const Plan plan = make_plan(profile, devices(2), request);
  EXPECT_EQ(plan.replicas, 1);
  check_plan(plan, layers_of(profile));
}

TEST(MakePlan, one_device_has_no_more_stages_than_one) {
  const Plan plan = make_plan(profile_of({0.1, 0.0005}),
                              devices(1),
                              {{.batch = 8, .messages = {.latency = {}}}, {}});
  EXPECT_EQ(plan.stages.size(), 1U);
}

TEST(MakePlan, gives_the_same_plan_every_time) {
  const PlanTask request{{.batch = 16}, {.microbatches = 8}};
  EXPECT_EQ(make_plan(blocks_and_head(4), devices(4), request),
            make_plan(blocks_and_head(4), devices(4), request));
}

TEST(MakePlan, ties_of_layers_are_those_of_the_stages_they_are_in) {
  Profile profile = profile_of({0.001, 0.001, 0.001, 0.001});
  profile.ties = {{0, 3}, {0, 1}, {2, 3}};
  const Plan plan = make_plan(
      profile,
      devices(2),
      {{.batch = 8}, {.stages = 2, .microbatches = 4, .schedule = "1f1b"}});
  check_plan(plan, layers_of(profile), profile.ties);
  EXPECT_EQ(plan.schedule.graph.ties(),
            (std::vector<StageTie>{{StageId{0}, StageId{1}}}));
}

TEST(MakePlan, refuses_ties_of_layers_that_are_not_there) {
  Profile profile = profile_of({0.001, 0.001});
  for (const LayerTie tie : {LayerTie{0, 2}, {-1, 1}, {1, 1}, {1, 0}}) {
    profile.ties = {tie};
    EXPECT_EQ(plan_error(profile, devices(2), {{.batch = 8}, {}}),
              "layers " + std::to_string(tie.earlier) + " and " +
                  std::to_string(tie.later) +
                  " of the profile cannot share a weight. Profile the model "
                  "again.");
  }
}

TEST(StageTies, are_between_stages_and_each_stands_once) {
  EXPECT_EQ(stage_ties({0, 2, 4, 6}, {{4, 5}, {2, 5}, {0, 3}, {1, 2}}),
            (std::vector<StageTie>{{StageId{0}, StageId{1}},
                                   {StageId{1}, StageId{2}}}));
  EXPECT_TRUE(stage_ties({0, 6}, {{0, 5}}).empty());
}

TEST(MakePlan, sharded_states_are_divided_among_replicas) {
  Profile profile = profile_of({0.01});
  profile.layers[0].parameters = {1000};
  PlanTask request{{.batch = 16}, {.replicas = 4, .microbatches = 1}};
  // Parameters, gradients, two states, and what three others sent.
  EXPECT_EQ(make_plan(profile, devices(4), request).prediction->stages[0].fixed,
            Bytes{1000 + 1000 + 2 * 1000 + 3 * 250});
  request.shard_states = ShardStates::optimizer;
  const Plan sharded = make_plan(profile, devices(4), request);
  EXPECT_EQ(sharded.schedule.synchronisation.shard_states,
            ShardStates::optimizer);
  EXPECT_EQ(sharded.prediction->stages[0].fixed,
            Bytes{1000 + 1000 + 2 * 250 + 4 * 250});
  // Gradients too, and no sums that wait for the last microbatch.
  request.shard_states = ShardStates::gradients;
  EXPECT_EQ(make_plan(profile, devices(4), request).prediction->stages[0].fixed,
            Bytes{1000 + 3 * 250});
}

TEST(MakePlan, says_what_other_meshes_would_have_taken) {
  Profile profile = profile_of({0.1, 0.08});
  profile.layers[0].parameters = {100};
  profile.layers[1].parameters = {300};
  PlanTask request{
      {.batch = 16, .state_copies = 0},
      {.replicas = 0, .microbatches = 4, .schedule = "1f1b", .steals = false}};
  const Plan plan = make_plan(profile, devices(2), request);
  ASSERT_EQ(plan.prediction->compared.size(), 2u);
  EXPECT_EQ(plan.prediction->compared[0].replicas, 1);
  EXPECT_EQ(plan.prediction->compared[0].devices, 2);
  EXPECT_EQ(plan.prediction->compared[0].peak, Bytes{600});
  EXPECT_EQ(plan.prediction->compared[1].step, plan.prediction->step);
  EXPECT_GT(plan.prediction->compared[0].step, plan.prediction->step);
  const Plan tight = make_plan(profile, devices(2, {700}), request);
  EXPECT_EQ(tight.replicas, 1);
  EXPECT_EQ(tight.prediction->compared.at(1).step, Seconds{});
  request.replicas = 1;
  EXPECT_TRUE(
      make_plan(profile, devices(2), request).prediction->compared.empty());
}

TEST(MakePlan, says_which_numbers_do_not_go_together) {
  const Profile profile = profile_of({1, 1, 1});
  EXPECT_EQ(plan_error(profile, devices(4), {{.batch = 1}, {.stages = 4}}),
            "cannot cut 3 layers into 4 stages. Ask for between 1 and 3 "
            "stages.");
  EXPECT_EQ(plan_error(profile,
                       devices(2),
                       {{.batch = 1}, {.stages = 3, .schedule = "1f1b"}}),
            "cannot put 3 stages on 2 devices. Ask for between 1 and 2 stages, "
            "or name more devices.");
  EXPECT_EQ(
      plan_error(profile, devices(2), {{.batch = 4}, {.microbatches = 8}}),
      "cannot make 8 microbatches of a batch of 4 samples. Give every "
      "microbatch at least one sample.");
  EXPECT_EQ(plan_error(profile,
                       devices(1),
                       {{.batch = 1}, {.stages = 2, .schedule = "1f1b"}}),
            "cannot put 2 stages on 1 device. Ask for 1 stage, or name more "
            "devices.");
  EXPECT_EQ(
      plan_error({.model = "net", .device = "", .layers = {}}, devices(1), {}),
      "the profile of 'net' holds no measured layer. Profile a model "
      "with at least one layer.");
  EXPECT_EQ(plan_error(profile, {}, {}),
            "there is no device to put a stage on. Name at least one device.");
  EXPECT_EQ(plan_error(profile, {{.name = "cpu:0", .speed = 0}}, {}),
            "device 'cpu:0' has no sensible speed and memory. Give it a speed "
            "above 0 and a memory of 0 (no limit) or more.");
  EXPECT_EQ(plan_error(profile, devices(1), {{.batch = 0}, {}}),
            "the request for a plan has a number that is too small. Ask for a "
            "batch of at least 1 and a bandwidth above 0; everything else is 0 "
            "or more.");
  EXPECT_EQ(plan_error(profile_of({-1}), devices(1), {}),
            "layer '0' of the profile has a cost below zero, or one that is no "
            "number. Profile the model again.");
  EXPECT_EQ(
      plan_error(profile, devices(1), {{.batch = 1}, {.schedule = "1f1c"}}),
      "there is no schedule '1f1c'. Did you mean 1f1b? Choose one of: "
      "auto, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v.");
}

Profile heavy_profile() {
  Profile profile = profile_of(std::vector<double>(4, 0.01));
  for (LayerCost& layer : profile.layers) {
    layer.parameters = {25 << 20};
    layer.working = {25 << 20};
  }
  return profile;
}

TEST(MakePlan, names_the_smallest_budget_when_nothing_fits) {
  EXPECT_EQ(plan_error(heavy_profile(),
                       devices(2, {150 << 20}),
                       {{.batch = 8}, {.stages = 2}}),
            "no cut of 'net' into 2 stages fits a memory of 150 MiB per "
            "device. Give every device at least 225 MiB; or take more devices, "
            "a smaller batch or more microbatches.");
  std::vector<DeviceSpec> unequal = devices(3, {50 << 20});
  unequal[1].memory = {90 << 20};
  EXPECT_EQ(plan_error(
                heavy_profile(), unequal, {{.batch = 8}, {.schedule = "1f1b"}}),
            "no cut of 'net' into 1 to 3 stages fits a memory of 50.0 MiB to "
            "90.0 MiB per device. Give every device at least 225 MiB, which is "
            "enough for 2 stages; or take more devices, a smaller batch or "
            "more microbatches.");
}

// The amount behind "at least", as a user would type it into a configuration.
Bytes budget_in(const std::string& message) {
  const std::string mark = "at least ";
  const std::size_t start = message.find(mark) + mark.size();
  return parse_bytes(
      message.substr(start, message.find_first_of(",;", start) - start));
}

TEST(MakePlan, fits_when_given_back_the_budget_its_error_names) {
  std::mt19937 random(11);
  std::uniform_int_distribution<std::int64_t> bytes(1, 3'000'000);
  for (int i = 0; i < 120; ++i) {
    Profile profile = profile_of(std::vector<double>(6, 0.01));
    for (LayerCost& layer : profile.layers) {
      layer.parameters = {bytes(random)};
      layer.activations = {bytes(random)};
      layer.crossing = {bytes(random)};
    }
    const PlanTask request{
        {.batch = 16},
        {.stages = i % 4, .schedule = i % 8 < 4 ? "auto" : "1f1b"}};
    const std::string message = plan_error(profile, devices(3, {1}), request);
    ASSERT_NE(message, "no error");
    const Bytes budget = budget_in(message);
    EXPECT_EQ(plan_error(profile, devices(3, budget), request), "no error")
        << message;
    // Three digits are shown, so it is never much too much either.
    const Bytes less{budget.value - budget.value / 90};
    EXPECT_NE(plan_error(profile, devices(3, less), request), "no error")
        << message;
  }
}

}  // namespace
}  // namespace cleave
