#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cleave/plan/plan.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "tests/plan/profiles.h"

namespace cleave {
namespace {

std::vector<std::string> all_layers() {
  return {"embed", "block.0", "block.1", "head"};
}

// One stage per rank, four microbatches.
Plan plan_of(const std::vector<std::vector<std::string>>& stages,
             const std::string& schedule = "1f1b") {
  Plan plan{.model = "net", .batch = 8, .schedule_name = schedule};
  for (const std::vector<std::string>& layers : stages) {
    const auto rank = static_cast<int>(plan.stages.size());
    plan.devices.push_back({.name = "cpu:" + std::to_string(rank)});
    plan.stages.push_back({.rank = {rank}, .layers = layers});
  }
  const auto ranks = std::max(1, static_cast<int>(stages.size()));
  plan.schedule = complete(make_schedule(schedule, {ranks, 1, 4}));
  return plan;
}

Plan two_stages(const std::string& schedule = "1f1b") {
  return plan_of({{"embed", "block.0"}, {"block.1", "head"}}, schedule);
}

std::string problem_of(const Plan& plan,
                       const std::vector<LayerTie>& ties = {}) {
  return error_of([&] { check_plan(plan, all_layers(), ties); });
}

// The plan as an editor leaves it: its JSON with one text in place of another.
Plan edited(const Plan& plan, const std::string& from, const std::string& to) {
  std::string text = to_json(plan);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in\n" << text;
  text.replace(std::min(at, text.size()), from.size(), to);
  return parse_plan(text, "p");
}

// What reading it says.
std::string problem_of_edit(const Plan& plan,
                            const std::string& from,
                            const std::string& to) {
  return error_of([&] { check_plan(edited(plan, from, to), all_layers()); });
}

TEST(CheckPlan, accepts_every_cut_of_the_model) {
  EXPECT_EQ(problem_of(plan_of({all_layers()})), "no error");
  EXPECT_EQ(problem_of(plan_of({{"embed"}, {"block.0", "block.1", "head"}})),
            "no error");
}

TEST(CheckPlan, refuses_replicas_that_steal) {
  Plan plan = two_stages();
  plan.steals = true;
  EXPECT_EQ(problem_of(plan), "no error");
  plan.replicas = 2;
  EXPECT_EQ(problem_of(plan),
            "the plan has 2 replicas whose devices steal work, but only those "
            "of one replica can. Set \"steals\" to false, or \"replicas\" to "
            "1.");
}

TEST(CheckPlan, keeps_rows_that_were_edited_as_they_are) {
  const Plan plan = two_stages();
  EXPECT_EQ(to_text(plan.schedule),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 F2 SF2 RB1 B1 F3 SF3 RB2 B2 RB3 B3 "
            "U\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 RF2 F2 B2 SB2 RF3 F3 B3 SB3 "
            "U\n");
  // One backward later, and the last message behind the update.
  const Plan later = edited(plan, "RB0 B0 F2 SF2", "F2 SF2 RB0 B0");
  EXPECT_EQ(problem_of(later), "no error");
  const Plan moved = edited(later, "B3 SB3 U", "B3 U SB3");
  EXPECT_EQ(problem_of(moved), "no error");
  EXPECT_EQ(to_text(moved.schedule),
            "rank 0: F0 SF0 F1 SF1 F2 SF2 RB0 B0 RB1 B1 F3 SF3 RB2 B2 RB3 B3 "
            "U\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 RF2 F2 B2 SB2 RF3 F3 B3 U "
            "SB3\n");
  EXPECT_EQ(parse_plan(to_json(moved), "p"), moved);
}

TEST(CheckPlan, refuses_an_update_before_the_last_weight_gradient) {
  Plan plan = two_stages("zb-h1");
  const std::string last = to_text(plan.schedule.rows[1]);
  ASSERT_TRUE(last.ends_with("W3 U")) << last;
  EXPECT_EQ(problem_of(plan), "no error");
  EXPECT_EQ(problem_of_edit(plan, "W3 U", "U W3"),
            "p: the schedule cannot run: it has 1 problem. Change what is "
            "marked:\n"
            "rank 0: ... W1 F3 SF3 RB2 B2 W2 RB3 B3 U W3\n"
            "                                       ^ U before W3, which it "
            "needs\n");
}

TEST(CheckPlan, refuses_an_update_before_the_last_gradient) {
  EXPECT_EQ(problem_of_edit(two_stages(), "RB3 B3 U", "U RB3 B3"),
            "p: the schedule cannot run: it has 1 problem. Change what is "
            "marked:\n"
            "rank 0: ... F2 SF2 RB1 B1 F3 SF3 RB2 B2 U RB3 B3\n"
            "                                        ^ U before B3, which it "
            "needs\n");
}

TEST(CheckPlan, refuses_actions_that_were_swapped_and_cannot_be) {
  EXPECT_EQ(problem_of_edit(two_stages(), "SF0 F1", "F1 SF0"), "no error");
  EXPECT_EQ(problem_of_edit(two_stages(), "RF2 F2", "F2 RF2"),
            "p: the schedule cannot run: it has 1 problem. Change what is "
            "marked:\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 F2 RF2 B2 SB2 RF3 F3 B3 SB3 "
            "U\n"
            "                                    ^ F2 before RF2, which it "
            "needs\n");
  // Gradients are summed in the order of one device.
  const std::string swapped =
      problem_of_edit(two_stages(), "RB2 B2 RB3 B3", "RB3 B3 RB2 B2");
  EXPECT_NE(
      swapped.find("B2 after B3: a stage takes the microbatches in order"),
      std::string::npos)
      << swapped;
  // Each row for itself is fine.
  const std::string waiting =
      problem_of_edit(two_stages(), "F1 SF1 RB0 B0", "RB0 B0 F1 SF1") +
      problem_of_edit(edited(two_stages(), "F1 SF1 RB0 B0", "RB0 B0 F1 SF1"),
                      "B0 SB0 RF1 F1",
                      "RF1 F1 B0 SB0");
  EXPECT_TRUE(waiting.starts_with("no error")) << waiting;
  EXPECT_NE(waiting.find("waits forever"), std::string::npos) << waiting;
}

TEST(CheckPlan, refuses_actions_that_are_missing_or_not_needed) {
  const auto problems_of = [](const std::string& from, const std::string& to) {
    return problem_of_edit(two_stages(), from, to);
  };
  EXPECT_NE(problems_of(" U", "").find("U missing"), std::string::npos);
  EXPECT_NE(problems_of("SB3 U", "U").find("SB3 missing"), std::string::npos);
  EXPECT_NE(problems_of("U", "U G0").find("G0 is not needed"),
            std::string::npos);
  EXPECT_NE(problems_of("U", "U U").find("U a second time"), std::string::npos);
}

TEST(CheckPlan, refuses_a_schedule_of_passes_alone) {
  Plan plan = two_stages();
  plan.schedule = passes_of(plan.schedule);
  EXPECT_EQ(problem_of(plan),
            "the plan's schedule has no updates. Plan again, or give the "
            "schedule to parallel.schedule as file:NAME.");
}

TEST(CheckPlan, refuses_ranks_that_the_schedule_does_not_have) {
  Plan plan = two_stages();
  std::swap(plan.stages[0].rank, plan.stages[1].rank);
  EXPECT_EQ(problem_of(plan),
            "stage 0 is on rank 1 in the plan's stages and on rank 0 in its "
            "schedule. Make them agree.");
  plan.stages[0].rank = {7};
  EXPECT_EQ(problem_of(plan),
            "stage 0 is on rank 7 in the plan's stages and on rank 0 in its "
            "schedule. Make them agree.");
  plan = two_stages();
  plan.devices.pop_back();
  EXPECT_EQ(problem_of(plan),
            "the plan has 1 device and a schedule of 2 ranks. Give every rank "
            "one device.");
}

TEST(CheckPlan, refuses_ties_that_the_model_does_not_have) {
  const std::vector<LayerTie> ties{{0, 3}};
  const std::string refused =
      "the plan's ties are not those of the model's shared weights. Plan "
      "again: which stages share weights depends on the cuts.";
  Plan plan = two_stages();
  EXPECT_EQ(problem_of(plan, ties), refused);
  EXPECT_EQ(problem_of(plan, {{0, 1}}), "no error");  // both in one stage
  plan.schedule = passes_of(plan.schedule);
  plan.schedule.graph = StageGraph(2, {{StageId{0}, StageId{1}}});
  plan.schedule = complete(plan.schedule);
  EXPECT_EQ(problem_of(plan, ties), "no error");
  EXPECT_EQ(problem_of(plan), refused);
  EXPECT_EQ(problem_of(plan, {{0, 1}}), refused);
}

TEST(CheckPlan, refuses_buckets_that_the_schedule_does_not_sum) {
  Plan plan = two_stages();
  plan.schedule = passes_of(plan.schedule);
  plan.replicas = 2;
  plan.stages[0].buckets = {{"block.0"}, {"embed"}};
  plan.stages[1].buckets = {{"head", "block.1"}};
  plan.schedule.synchronisation.buckets = {2, 1};
  plan.schedule = complete(plan.schedule);
  EXPECT_EQ(problem_of(plan), "no error");
  const std::string one = problem_of_edit(plan, " G1", "");
  EXPECT_NE(one.find("G1 missing"), std::string::npos) << one;
}

// Two replicas of two stages that sum three buckets.
Plan with_buckets() {
  Plan plan = two_stages();
  plan.replicas = 2;
  plan.stages[0].buckets = {{"block.0"}, {"embed"}};
  plan.stages[1].buckets = {{"head", "block.1"}};
  Schedule passes = passes_of(plan.schedule);
  const Schedule frame = schedule_frame(plan, {}, ShardStates::none, false);
  passes.synchronisation = frame.synchronisation;
  plan.schedule = complete(passes);
  return plan;
}

TEST(CheckPlan, refuses_buckets_of_other_layers) {
  Plan plan = with_buckets();
  EXPECT_EQ(problem_of(plan), "no error");
  plan.stages[0].buckets[1] = {"head"};
  EXPECT_EQ(problem_of(plan),
            "a bucket of stage 0 has 'head', which is no layer of that stage. "
            "Name layers of the stage, or plan again.");
  plan.stages[0].buckets[1] = {"block.0"};
  EXPECT_EQ(problem_of(plan),
            "layer 'block.0' stands twice in the buckets of stage 0. Delete "
            "one of them.");
  plan.stages[0].buckets.clear();
  EXPECT_EQ(problem_of(plan),
            "stage 0 has no buckets, but there are 2 replicas. Plan again, or "
            "name its layers in a bucket.");
  plan = with_buckets();
  plan.replicas = 1;
  EXPECT_EQ(problem_of(plan),
            "stage 0 has buckets, but there is one replica. Delete them.");
}

TEST(CheckPlan, refuses_a_schedule_that_says_something_else) {
  Plan plan = with_buckets();
  plan.stages[1].buckets = {{"head"}, {"block.1"}};
  const std::string refused =
      "the plan's schedule sums other buckets than the stages have. Plan "
      "again.";
  EXPECT_EQ(problem_of(plan), refused);
  plan = two_stages();
  plan.schedule.synchronisation.shard_states = ShardStates::optimizer;
  EXPECT_EQ(problem_of(plan), refused);
  plan = two_stages();
  plan.schedule.graph = StageGraph(3);
  EXPECT_EQ(problem_of(plan),
            "the plan has 2 stages and a schedule of 3 stages. Make them "
            "agree.");
  plan.schedule.graph = StageGraph(2, {{StageId{0}, StageId{7}}});
  EXPECT_EQ(error_of([&] { check_plan(plan); }),
            "the plan ties stage 0 to stage 7. Tie an earlier stage to a later "
            "one.");
}

TEST(CheckPlan, refuses_numbers_that_cannot_be_multiplied) {
  Plan plan = two_stages();
  plan.batch = std::int64_t{1} << 40;
  plan.replicas = 2'000'000'000;
  EXPECT_EQ(problem_of_edit(two_stages(),
                            "\"batch\": 8,\n  \"replicas\": 1,",
                            "\"batch\": 99999999999, \"replicas\": 100000,"),
            "p: the plan has 200000 ranks. Take at most 65536.");
  EXPECT_EQ(problem_of(plan),
            "the plan has 4000000000 ranks. Take at most 65536.");
  plan.replicas = 30'000;
  plan.schedule.microbatches = 99'999;
  EXPECT_EQ(problem_of(plan),
            "the plan has 99999 microbatches on each of 30000 replicas. Take "
            "at most 99999, and fewer where there are many replicas.");
  plan.replicas = 1;
  plan.schedule.microbatches = 100'000;
  EXPECT_EQ(problem_of(plan),
            "the plan has 100000 microbatches on each of 1 replica. Take at "
            "most 99999, and fewer where there are many replicas.");
}

TEST(CheckPlan, refuses_a_prediction_of_other_stages_or_devices) {
  Plan plan = two_stages();
  plan.prediction = Prediction{.peaks = {{1}, {2}}, .stages = {{}, {}}};
  EXPECT_EQ(problem_of(plan), "no error");
  const std::string refused =
      "the plan's prediction is of other stages or devices. Delete the "
      "prediction: a plan runs without.";
  plan.prediction->stages.pop_back();
  EXPECT_EQ(problem_of(plan), refused);
  plan.prediction->stages = {{}, {}};
  plan.prediction->peaks.pop_back();
  EXPECT_EQ(problem_of(plan), refused);
}

TEST(CheckPlan, names_the_layer_that_is_missing) {
  EXPECT_EQ(problem_of(plan_of({{"embed", "block.0"}, {"head"}})),
            "layer 'block.1' is missing from the plan. Put it in front of "
            "'head' in stage 1.");
  EXPECT_EQ(problem_of(plan_of({{"embed", "block.0"}, {"block.1"}})),
            "layer 'head' is missing from the plan. Put it at the end of the "
            "last stage.");
}

TEST(CheckPlan, names_the_layer_that_stands_twice) {
  EXPECT_EQ(
      problem_of(
          plan_of({{"embed", "block.0"}, {"block.0", "block.1", "head"}})),
      "layer 'block.0' stands twice in the plan: in stage 0 and in stage 1. "
      "Delete one of them.");
  EXPECT_EQ(
      problem_of(plan_of({{"embed", "block.0", "block.1"}, {"head", "embed"}})),
      "layer 'embed' stands twice in the plan: in stage 0 and in stage 1. "
      "Delete one of them.");
}

TEST(CheckPlan, names_the_layer_the_model_does_not_have) {
  EXPECT_EQ(problem_of(plan_of({{"embed", "blok.0"}, {"block.1", "head"}})),
            "stage 0 has a layer 'blok.0', which the model does not have. Did "
            "you mean block.0?");
  EXPECT_EQ(
      problem_of(
          plan_of({{"embed", "block.0"}, {"block.1", "head", "pooling"}})),
      "stage 1 has a layer 'pooling', which the model does not have. Delete "
      "it.");
}

TEST(CheckPlan, names_the_layer_that_is_out_of_order) {
  EXPECT_EQ(problem_of(plan_of({{"embed", "block.1"}, {"block.0", "head"}})),
            "layer 'block.1' in stage 0 is out of order: the model has "
            "'block.0' before it. Keep the layers in the order of the model.");
}

TEST(CheckPlan, refuses_a_stage_without_layers_and_a_plan_without_stages) {
  EXPECT_EQ(problem_of(plan_of({all_layers(), {}})),
            "stage 1 has no layers. Give it at least one, or delete the "
            "stage.");
  EXPECT_EQ(problem_of(plan_of({})),
            "the plan has no stages. Give it at least one.");
}

TEST(CheckPlan, refuses_numbers_that_make_no_sense) {
  Plan plan = plan_of({all_layers()});
  plan.schedule.microbatches = 9;
  EXPECT_EQ(problem_of(plan),
            "the plan splits a batch of 8 samples into 9 microbatches. Give "
            "every microbatch at least one sample.");
  plan = plan_of({all_layers()});
  plan.replicas = 3;
  EXPECT_EQ(problem_of(plan),
            "the plan splits a batch of 8 samples into 4 microbatches on each "
            "of 3 replicas. Give every microbatch at least one sample.");
}

}  // namespace
}  // namespace cleave
