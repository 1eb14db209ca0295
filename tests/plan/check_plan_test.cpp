#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cleave/error.h"
#include "cleave/plan/plan.h"

namespace cleave {
namespace {

std::vector<std::string> all_layers() {
  return {"embed", "block.0", "block.1", "head"};
}

Plan plan_of(const std::vector<std::vector<std::string>>& stages) {
  Plan plan{.model = "net", .batch = 8, .microbatches = 4, .stages = {}};
  for (const std::vector<std::string>& layers : stages) {
    plan.stages.push_back(
        {.device = "cpu:" + std::to_string(plan.stages.size()),
         .layers = layers});
  }
  return plan;
}

std::string error_of(const Plan& plan) {
  try {
    check_plan(plan, all_layers());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CheckPlan, accepts_every_cut_of_the_model) {
  EXPECT_EQ(error_of(plan_of({all_layers()})), "no error");
  EXPECT_EQ(error_of(plan_of({{"embed"}, {"block.0", "block.1", "head"}})),
            "no error");
}

TEST(CheckPlan, refuses_replicas_that_lend) {
  Plan plan = plan_of({{"embed"}, {"block.0", "block.1", "head"}});
  plan.lend = true;
  EXPECT_EQ(error_of(plan), "no error");
  plan.replicas = 2;
  EXPECT_EQ(error_of(plan),
            "the plan has 2 replicas whose devices lend, but only those of one "
            "replica can. Set \"lend\" to false, or \"replicas\" to 1.");
}

TEST(CheckPlan, refuses_devices_that_the_schedule_does_not_want_so) {
  Plan plan = plan_of({{"embed"}, {"block.0"}, {"block.1"}, {"head"}});
  plan.stages[2].device = "cpu:1";
  plan.stages[3].device = "cpu:0";
  EXPECT_EQ(error_of(plan),
            "the schedule '1f1b' cannot have 2 stages per rank. Ask for 1, or "
            "choose another schedule.");
  plan.schedule = "interleaved";
  EXPECT_EQ(
      error_of(plan),
      "the plan's 4 stages are not on its 2 devices as the schedule "
      "'interleaved' wants them. Change the devices of the stages, or the "
      "schedule to auto, which takes any.");
  plan.schedule = "zb-v";
  EXPECT_EQ(error_of(plan), "no error");
  plan.schedule = "auto";
  EXPECT_EQ(error_of(plan), "no error");
}

TEST(CheckPlan, names_the_layer_that_is_missing) {
  EXPECT_EQ(error_of(plan_of({{"embed", "block.0"}, {"head"}})),
            "layer 'block.1' is missing from the plan. Put it in front of "
            "'head' in stage 1.");
  EXPECT_EQ(error_of(plan_of({{"embed", "block.0"}, {"block.1"}})),
            "layer 'head' is missing from the plan. Put it at the end of the "
            "last stage.");
}

TEST(CheckPlan, names_the_layer_that_stands_twice) {
  EXPECT_EQ(
      error_of(plan_of({{"embed", "block.0"}, {"block.0", "block.1", "head"}})),
      "layer 'block.0' stands twice in the plan: in stage 0 and in stage 1. "
      "Delete one of them.");
  EXPECT_EQ(
      error_of(plan_of({{"embed", "block.0", "block.1"}, {"head", "embed"}})),
      "layer 'embed' stands twice in the plan: in stage 0 and in stage 1. "
      "Delete one of them.");
}

TEST(CheckPlan, names_the_layer_the_model_does_not_have) {
  EXPECT_EQ(error_of(plan_of({{"embed", "blok.0"}, {"block.1", "head"}})),
            "stage 0 has a layer 'blok.0', which the model does not have. Did "
            "you mean block.0?");
  EXPECT_EQ(
      error_of(plan_of({{"embed", "block.0"}, {"block.1", "head", "pooling"}})),
      "stage 1 has a layer 'pooling', which the model does not have. Delete "
      "it.");
}

TEST(CheckPlan, names_the_layer_that_is_out_of_order) {
  EXPECT_EQ(error_of(plan_of({{"embed", "block.1"}, {"block.0", "head"}})),
            "layer 'block.1' in stage 0 is out of order: the model has "
            "'block.0' before it. Keep the layers in the order of the model.");
}

TEST(CheckPlan, refuses_a_stage_without_layers_and_a_plan_without_stages) {
  EXPECT_EQ(error_of(plan_of({all_layers(), {}})),
            "stage 1 has no layers. Give it at least one, or delete the "
            "stage.");
  EXPECT_EQ(error_of(plan_of({})),
            "the plan has no stages. Give it at least one.");
}

TEST(CheckPlan, refuses_numbers_and_schedules_that_cannot_be_run) {
  Plan plan = plan_of({all_layers()});
  plan.microbatches = 9;
  EXPECT_EQ(error_of(plan),
            "the plan splits a batch of 8 samples into 9 microbatches. Give "
            "every microbatch at least one sample.");
  plan = plan_of({all_layers()});
  plan.schedule = "gpip";
  EXPECT_EQ(error_of(plan),
            "there is no schedule 'gpip'. Did you mean gpipe? Choose one of: "
            "auto, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v.");
}

}  // namespace
}  // namespace cleave
