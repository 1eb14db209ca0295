#include "cleave/report/plan_table.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>

#include "cleave/report/text.h"

namespace cleave {
namespace {

Plan sample() {
  return {.model = "gpt",
          .batch = 64,
          .devices = {{"cpu:0", {}}, {"cpu:1", {}}},
          .stages = {{Rank{0}, {"embed", "block.0", "block.1"}, {}},
                     {Rank{1}, {"head"}, {}}},
          .schedule_name = "1f1b",
          .schedule = {.graph = {2}, .microbatches = 16},
          .prediction = Prediction{
              .step = {5.95},
              .bubble = 0.31,
              .peaks = {{3LL << 30}, {2800LL << 20}},
              .stages = {{.cost = {.forward = {0.110}, .backward = {0.230}},
                          .parameters = {255 << 20}},
                         {.cost = {.forward = {0.0506}, .backward = {0.1}},
                          .parameters = {1 << 10}}}}};
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string last_line(const std::string& text) {
  return text.substr(text.rfind('\n', text.size() - 2) + 1);
}

TEST(PlanTable, shows_who_computes_what_and_what_it_costs) {
  EXPECT_EQ("\n" + plan_table(sample()),
            R"(
gpt | 4 layers | batch 64 in 16 microbatches of 4 samples | schedule 1f1b

stage  device  layers               parameters  forward  backward      peak  load
─────  ──────  ───────────────────  ──────────  ───────  ────────  ────────  ───────────
    0  cpu:0   embed … block.1 (3)     255 MiB   110 ms    230 ms  3.00 GiB  ██████ 100%
    1  cpu:1   head                   1.00 KiB  50.6 ms    100 ms  2.73 GiB  ██▋     44%

predicted | step 5.95 s | 10.8 samples/s | bubble 31% | slowest stage 1.39 x the mean
)");
}

TEST(PlanTable, says_how_many_replicas_share_a_batch) {
  Plan plan = sample();
  plan.replicas = 2;
  plan.schedule.microbatches = 8;
  EXPECT_EQ(first_line(plan_table(plan)),
            "gpt | 4 layers | batch 64 in 2 x 8 microbatches of 4 samples | 2 "
            "replicas | schedule 1f1b");
}

TEST(PlanTable, says_where_ranks_steal_work) {
  Plan plan = sample();
  EXPECT_EQ(plan_table(plan).find("steal"), std::string::npos);
  plan.steals = true;
  plan.schedule_name = "auto";
  EXPECT_EQ(first_line(plan_table(plan)),
            "gpt | 4 layers | batch 64 in 16 microbatches of 4 samples | "
            "schedule auto | ranks steal work");
  plan.steals = false;
  plan.in_order_because = "devices share cores";
  EXPECT_TRUE(first_line(plan_table(plan))
                  .ends_with(" | ranks in order: devices share cores"));
}

// Stage 1 has the shorter backward, and with its weight gradients the longer
// one.
TEST(PlanTable, weight_gradients_belong_to_backward_and_load) {
  Plan plan = sample();
  plan.prediction->stages[0].cost = {
      .forward = {0.1}, .backward = {0.2}, .weight = {0}};
  plan.prediction->stages[1].cost = {
      .forward = {0.1}, .backward = {0.1}, .weight = {0.4}};
  const std::string table = plan_table(plan);
  EXPECT_NE(table.find("  100 ms    200 ms  3.00 GiB  ███     50%\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("  100 ms    500 ms  2.73 GiB  ██████ 100%\n"),
            std::string::npos)
      << table;
  EXPECT_TRUE(last_line(table).ends_with("slowest stage 1.33 x the mean\n"))
      << table;
}

TEST(PlanTable, a_stage_shows_the_device_and_the_peak_of_its_rank) {
  Plan plan = sample();
  std::swap(plan.stages[0].rank, plan.stages[1].rank);
  const std::string table = plan_table(plan);
  EXPECT_NE(table.find("    0  cpu:1   embed"), std::string::npos) << table;
  EXPECT_NE(table.find("230 ms  2.73 GiB"), std::string::npos) << table;
  EXPECT_NE(table.find("    1  cpu:0   head"), std::string::npos) << table;
  EXPECT_NE(table.find("100 ms  3.00 GiB"), std::string::npos) << table;
}

TEST(PlanTable, says_why_it_has_so_many_replicas) {
  Plan plan = sample();
  plan.replicas = 2;
  plan.prediction->compared = {{1, 4, Seconds{0.5}, Bytes{3 << 20}},
                               {2, 2, Seconds{0.25}, Bytes{5 << 20}},
                               {4, 1, Seconds{}, Bytes{}}};
  const std::string table = plan_table(plan);
  EXPECT_EQ(
      table.substr(table.find("compared")),
      "compared  | 1 replica of 4 devices: step 500 ms, largest peak 3.00 "
      "MiB\n"
      "          | 2 replicas of 2 devices: step 250 ms, largest peak 5.00 "
      "MiB, chosen\n"
      "          | 4 replicas of 1 device: no plan is possible\n");
}

TEST(PlanTable, can_do_without_unicode) {
  EXPECT_EQ("\n" + plan_table(sample(), true),
            R"(
gpt | 4 layers | batch 64 in 16 microbatches of 4 samples | schedule 1f1b

stage  device  layers                parameters  forward  backward      peak  load
-----  ------  --------------------  ----------  -------  --------  --------  -----------
    0  cpu:0   embed .. block.1 (3)     255 MiB   110 ms    230 ms  3.00 GiB  ###### 100%
    1  cpu:1   head                    1.00 KiB  50.6 ms    100 ms  2.73 GiB  ###...  44%

predicted | step 5.95 s | 10.8 samples/s | bubble 31% | slowest stage 1.39 x the mean
)");
}

TEST(PlanTable, shows_dashes_for_what_a_hand_written_plan_does_not_say) {
  const Plan plan{.model = "gpt",
                  .batch = 7,
                  .devices = {{"cpu:0", {}}},
                  .stages = {{Rank{0}, {"embed", "head"}, {}}},
                  .schedule_name = "gpipe",
                  .schedule = {.microbatches = 2}};
  EXPECT_EQ("\n" + plan_table(plan), R"(
gpt | 2 layers | batch 7 in 2 microbatches of 3 or 4 samples | schedule gpipe

stage  device  layers            parameters  forward  backward  peak  load
─────  ──────  ────────────────  ──────────  ───────  ────────  ────  ────
    0  cpu:0   embed … head (2)           -        -         -     -  -

not predicted
)");
}

TEST(PlanTable, shortens_long_names_at_their_beginning) {
  Plan plan = sample();
  plan.model = "/home/someone/models/with/a/path/gpt";
  plan.devices[0].name = "machine-17.example/cuda:3";
  plan.stages[0].layers = {"transformer.encoder.block.10.attention",
                           "transformer.encoder.block.11.mlp"};
  plan.stages[1].layers = {"été", "transformer.decoder.block.11.mlp"};
  EXPECT_EQ("\n" + plan_table(plan),
            R"(
…omeone/models/with/a/path/gpt | 4 layers | batch 64 in 16 microbatches of 4 samples | schedule 1f1b

stage  device        layers                     parameters  forward  backward      peak  load
─────  ────────────  ─────────────────────────  ──────────  ───────  ────────  ────────  ───────────
    0  …mple/cuda:3  …ttention … …k.11.mlp (2)     255 MiB   110 ms    230 ms  3.00 GiB  ██████ 100%
    1  cpu:1         été … …r.block.11.mlp (2)    1.00 KiB  50.6 ms    100 ms  2.73 GiB  ██▋     44%

predicted | step 5.95 s | 10.8 samples/s | bubble 31% | slowest stage 1.39 x the mean
)");
}

TEST(PlanTable, stays_within_100_columns) {
  Plan plan = sample();
  plan.model = std::string(300, 'm');
  for (StagePlan& stage : plan.stages) {
    plan.devices[stage.rank.value].name = std::string(300, 'd');
    stage.layers = {std::string(300, 'a'), std::string(300, 'b')};
  }
  std::istringstream lines(plan_table(plan));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(columns(line), 100) << line;
  }
}

}  // namespace
}  // namespace cleave
