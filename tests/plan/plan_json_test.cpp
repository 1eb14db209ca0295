#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>
#include <string>

#include "cleave/plan/make_plan.h"
#include "cleave/plan/plan.h"
#include "cleave/plan/predict.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/op.h"
#include "tests/plan/profiles.h"
#include "tests/temporary_folder.h"

namespace cleave {
namespace {

constexpr const char* kText = R"({
  "format": 2,
  "model": "mnist",
  "batch": 64,
  "replicas": 1,
  "devices": [
    {
      "name": "cpu:0",
      "memory_bytes": 10000000
    },
    {
      "name": "cpu:1"
    }
  ],
  "stages": [
    {
      "rank": 0,
      "layers": [
        "flatten",
        "hidden"
      ]
    },
    {
      "rank": 1,
      "layers": [
        "out"
      ]
    }
  ],
  "updates": {
    "shard_states": "none",
    "clips": false
  },
  "schedule": {
    "name": "1f1b",
    "microbatches": 2,
    "rows": [
      "F0 SF0 F1 SF1 RB0 B0 RB1 B1 U",
      "RF0 F0 B0 SB0 RF1 F1 B1 SB1 U"
    ]
  },
  "steals": true,
  "prediction": {
    "stages": [
      {
        "cost": {
          "forward_ms": 1.25,
          "backward_ms": 2.5,
          "weight_ms": 1.5,
          "update_ms": 0.75,
          "values_ms": 0.005,
          "gradients_ms": 0.0,
          "reduce_ms": 0.0
        },
        "memory": {
          "kept_bytes": 1000,
          "kept_for_weights_bytes": 500,
          "forward_need_bytes": 300,
          "backward_need_bytes": 40,
          "whole_need_bytes": 30,
          "weight_need_bytes": 250,
          "sum_bytes": 100,
          "leaving_bytes": 700,
          "returning_bytes": 0,
          "shared_bytes": 0
        },
        "parameter_bytes": 1607680,
        "fixed_bytes": 6430720
      },
      {
        "cost": {
          "forward_ms": 0.1,
          "backward_ms": 0.000001,
          "weight_ms": 0.0,
          "update_ms": 0.0,
          "values_ms": 0.0,
          "gradients_ms": 0.025,
          "reduce_ms": 0.0
        },
        "memory": {
          "kept_bytes": 0,
          "kept_for_weights_bytes": 0,
          "forward_need_bytes": 0,
          "backward_need_bytes": 0,
          "whole_need_bytes": 0,
          "weight_need_bytes": 0,
          "sum_bytes": 0,
          "leaving_bytes": 0,
          "returning_bytes": 1400,
          "shared_bytes": 1450
        },
        "parameter_bytes": 20520,
        "fixed_bytes": 0
      }
    ]
  }
}
)";

std::vector<StagePrediction> sample_stages() {
  return {{.cost = {.forward = {0.00125},
                    .backward = {0.0025},
                    .weight = {0.0015},
                    .update = {0.00075},
                    .values = {0.000005}},
           .memory = {.kept = {1000},
                      .kept_for_weights = {500},
                      .forward_need = {300},
                      .backward_need = {40},
                      .whole_need = {30},
                      .weight_need = {250},
                      .sums = {100},
                      .leaving = {700}},
           .parameters = {1607680},
           .fixed = {6430720}},
          {.cost = {.forward = {0.0001},
                    .backward = {1e-9},
                    .gradients = {0.000025}},
           .memory = {.returning = {1400}, .shared = {1450}},
           .parameters = {20520}}};
}

Plan sample() {
  Plan plan{.model = "mnist",
            .batch = 64,
            .devices = {{"cpu:0", {10000000}}, {"cpu:1", {}}},
            .stages = {{.rank = {0}, .layers = {"flatten", "hidden"}},
                       {.rank = {1}, .layers = {"out"}}},
            .schedule_name = "1f1b",
            .schedule = complete(make_schedule("1f1b", {2, 1, 2})),
            .steals = true};
  plan.prediction = predict(plan, sample_stages());
  return plan;
}

TEST(PlanJson, is_text_a_person_can_read_and_edit) {
  std::string expected = kText;
  expected.replace(expected.find("0.000001"), 8, "1e-06");
  EXPECT_EQ(to_json(sample()), expected);
  EXPECT_EQ(parse_plan(kText, "plan.json"), sample());
}

// What is predicted follows from the rows, so it is of the rows as they stand.
TEST(PlanJson, an_edited_plan_gets_a_prediction_of_its_own) {
  std::string text = kText;
  const std::string before = "F0 SF0 F1 SF1 RB0 B0 RB1 B1 U";
  text.replace(
      text.find(before), before.size(), "F0 SF0 RB0 B0 F1 SF1 RB1 B1 U");
  const Plan plan = parse_plan(text, "plan.json");
  const Prediction& found = *plan.prediction;
  EXPECT_EQ(found, predict(plan, sample_stages()));
  EXPECT_GT(found.step, sample().prediction->step);
  EXPECT_LT(found.peaks[0], sample().prediction->peaks[0]);
}

TEST(PlanJson, ties_may_stand_in_any_order) {
  Plan plan = sample();
  plan.stages.push_back({.rank = {2}, .layers = {"more"}});
  plan.devices.push_back({"cpu:2", {}});
  plan.prediction.reset();
  Schedule passes = make_schedule("1f1b", {3, 1, 2});
  passes.graph = StageGraph(3, {{{0}, {1}}, {{0}, {2}}});
  plan.schedule = complete(passes);
  std::string text = to_json(plan);
  const std::size_t first = text.find("\"later\": 1");
  const std::size_t second = text.find("\"later\": 2");
  ASSERT_LT(first, second);
  std::swap(text[first + 9], text[second + 9]);
  EXPECT_EQ(parse_plan(text, "p"), plan);
}

class RandomValues {
 public:
  std::int64_t whole(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  // Whole picoseconds, of any size up to a minute.
  Seconds time() {
    const std::int64_t most = std::int64_t{1} << whole(0, 46);
    return {static_cast<double>(whole(0, most)) / 1e12};
  }
  int count(int least, int most) {
    return static_cast<int>(whole(least, most));
  }
  bool truth() { return whole(0, 1) == 1; }
  Bytes bytes() { return {whole(0, std::int64_t{1} << 40)}; }
  std::string name() {
    constexpr std::array kParts{
        "block.", "\"", "\\", "é", "\n", "7", " ", "日"};
    std::string result;
    for (std::int64_t i = whole(0, 5); i > 0; --i) {
      result += kParts[whole(0, kParts.size() - 1)];
    }
    return result;
  }

 private:
  std::mt19937_64 random_{5};
};

// What a plan synchronises, and one of its generators' schedules.
Schedule random_schedule(RandomValues& random,
                         const Plan& plan,
                         Schedule passes) {
  std::vector<StageTie> ties;
  const auto stages = static_cast<int>(plan.stages.size());
  for (int later = 1; later < stages; ++later) {
    if (random.truth()) {
      ties.push_back({{later - 1}, {later}});
    }
  }
  const Schedule frame = schedule_frame(
      plan, ties, static_cast<ShardStates>(random.whole(0, 2)), random.truth());
  passes.graph = frame.graph;
  passes.synchronisation = frame.synchronisation;
  return complete(passes);
}

StagePrediction random_stage(RandomValues& random) {
  return {.cost = {.forward = random.time(),
                   .backward = random.time(),
                   .weight = random.time(),
                   .update = random.time(),
                   .values = random.time(),
                   .gradients = random.time(),
                   .reduce = random.time()},
          .memory = {.kept = random.bytes(),
                     .kept_for_weights = random.bytes(),
                     .forward_need = random.bytes(),
                     .backward_need = random.bytes(),
                     .whole_need = random.bytes(),
                     .weight_need = random.bytes(),
                     .sums = random.bytes(),
                     .leaving = random.bytes(),
                     .returning = random.bytes(),
                     .shared = random.bytes()},
          .parameters = random.bytes(),
          .fixed = random.bytes()};
}

Prediction random_prediction(RandomValues& random, const Plan& plan) {
  std::vector<StagePrediction> stages;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    stages.push_back(random_stage(random));
  }
  Prediction prediction = predict(plan, stages);
  for (int i = random.count(0, 3); i > 0; --i) {
    prediction.compared.push_back({.replicas = random.count(1, 9),
                                   .devices = random.count(1, 9),
                                   .step = random.time(),
                                   .peak = random.bytes()});
  }
  return prediction;
}

StagePlan random_stage_plan(RandomValues& random, Rank rank, int replicas) {
  StagePlan stage{.rank = rank, .layers = {random.name(), random.name()}};
  if (replicas > 1) {
    stage.buckets = {{stage.layers[1]}};
    if (random.truth() && stage.layers[0] != stage.layers[1]) {
      stage.buckets.push_back({stage.layers[0]});
    }
  }
  return stage;
}

Plan random_plan(RandomValues& random) {
  const int kind = random.count(0, static_cast<int>(kSchedules.size()) - 1);
  const std::string name(kSchedules[kind].name);
  const int fixed = kSchedules[kind].stages_per_rank;
  const ScheduleShape shape{
      random.count(1, 4), fixed == kAnyNumber ? 2 : fixed, random.count(1, 9)};
  Plan plan{.model = random.name(),
            .batch = random.whole(27, INT64_MAX),
            .replicas = random.count(1, 3),
            .schedule_name = random.name()};
  plan.steals = plan.replicas == 1 && random.truth();
  for (int i = 0; i < shape.ranks; ++i) {
    plan.devices.push_back(
        {random.name(), random.truth() ? random.bytes() : Bytes{}});
  }
  for (const Rank rank : placement(name, shape)) {
    plan.stages.push_back(random_stage_plan(random, rank, plan.replicas));
  }
  plan.schedule = random_schedule(random, plan, make_schedule(name, shape));
  if (random.truth()) {
    plan.prediction = random_prediction(random, plan);
  }
  return plan;
}

TEST(PlanJson, reading_gives_back_exactly_what_was_written) {
  RandomValues random;
  for (int i = 0; i < 500; ++i) {
    const Plan plan = random_plan(random);
    ASSERT_EQ(parse_plan(to_json(plan), "plan"), plan) << to_json(plan);
  }
}

// Thirds and sevenths: no short decimals. The first and the last layer share
// weights.
Profile odd_profile() {
  Profile profile{.model = "net", .microbatch = 3, .device = "", .layers = {}};
  for (int i = 1; i < 9; ++i) {
    profile.layers.push_back({.name = std::to_string(i),
                              .forward = {i / 3.0},
                              .backward = {i / 7.0},
                              .parameters = {1000},
                              .crossing = {i}});
  }
  profile.ties = {{0, 7}};
  return profile;
}

TEST(PlanJson, a_plan_that_was_made_survives_exactly) {
  const Profile profile = odd_profile();
  for (const bool clips : {false, true}) {
    for (const char* const schedule : {"auto", "zb-v", "interleaved"}) {
      const Plan plan = make_plan(
          profile,
          {{.name = "a", .speed = 0.7, .memory = {1 << 20}}, {.name = "b"}},
          {{.batch = 10, .clips = clips}, {.schedule = schedule}});
      EXPECT_FALSE(plan.schedule.graph.ties().empty());
      EXPECT_TRUE(plan.steals);
      EXPECT_EQ(parse_plan(to_json(plan), "plan"), plan);
    }
  }
}

TEST(PlanJson, a_plan_of_replicas_survives_exactly) {
  const Profile profile = odd_profile();
  for (const ShardStates shard :
       {ShardStates::none, ShardStates::optimizer, ShardStates::gradients}) {
    Plan plan =
        make_plan(profile,
                  devices(4),
                  {{.batch = 20, .clips = true, .bucket = {1500}},
                   {.stages = 2, .replicas = 2, .shard_states = shard}});
    EXPECT_GT(plan.stages[0].buckets.size(), 1U);
    EXPECT_EQ(parse_plan(to_json(plan), "plan"), plan);
    plan.prediction.reset();
    EXPECT_EQ(parse_plan(to_json(plan), "plan"), plan);
    check_plan(plan, layers_of(profile), profile.ties);
  }
}

TEST(PlanJson, what_was_compared_survives_exactly) {
  const Plan plan =
      make_plan(odd_profile(), devices(2), {{.batch = 8}, {.replicas = 0}});
  EXPECT_EQ(plan.prediction->compared.size(), 2U);
  EXPECT_EQ(parse_plan(to_json(plan), "plan"), plan);
}

TEST(PlanJson, what_is_predicted_may_be_left_out) {
  const Plan plan = parse_plan(
      R"({"format": 2, "model": "m", "batch": 8, "replicas": 1,
          "devices": [{"name": "cpu:0"}],
          "stages": [{"rank": 0, "layers": ["a", "b"]}],
          "updates": {"shard_states": "none", "clips": false},
          "schedule": {"name": "by hand", "microbatches": 1,
                       "rows": ["F0 B0 U"]},
          "steals": false})",
      "hand.json");
  EXPECT_EQ(plan,
            (Plan{.model = "m",
                  .batch = 8,
                  .devices = {{.name = "cpu:0"}},
                  .stages = {{.rank = {0}, .layers = {"a", "b"}}},
                  .schedule_name = "by hand",
                  .schedule = complete(make_schedule("gpipe", {1, 1, 1}))}));
  check_plan(plan, {"a", "b"});
}

TEST(PlanJson, a_plan_of_another_format_is_refused) {
  const std::string refused =
      "p is a plan of another version of cleave. Plan again with cleave plan.";
  for (const char* const text :
       {R"({"model": "m", "batch": 8, "microbatches": 2, "schedule": "gpipe",
            "stages": [{"device": "cpu:0", "layers": ["a", "b"]}],
            "predicted": {"step_ms": 1, "bubble": 0}})",
        R"({"model": "m", "batch": 8, "lend": true, "stages": []})",
        R"({"format": 1, "model": "m"})",
        R"({"format": 3, "model": "m"})",
        R"({"format": "2", "model": "m"})"}) {
    EXPECT_EQ(error_of([&] { parse_plan(text, "p"); }), refused) << text;
  }
}

struct Damage {
  const char* from;
  const char* to;
  const char* message;
};

constexpr std::array kDamages{
    Damage{"\"batch\": 64",
           "\"bach\": 64",
           "p: bach is no known key. Did you mean batch?"},
    Damage{"\"steals\"",
           "\"comment\"",
           "p: comment is no known key. The known ones are: format, model, "
           "batch, replicas, devices, stages, ties, updates, schedule, steals, "
           "in_order_because, "
           "prediction."},
    Damage{"\"rank\": 1",
           "\"ranks\": 1",
           "p: stages[1].ranks is no known key. Did you mean rank?"},
    Damage{"\"rank\": 1",
           "\"rank\": -1",
           "p: stages[1].rank is -1. It must be a whole number from 0 to "
           "2147483647."},
    Damage{"RB0 B0 RB1 B1 U",
           "RB0 B0 RB1 U B1",
           "p: the schedule cannot run: it has 1 problem. Change what is "
           "marked:\n"
           "rank 0: F0 SF0 F1 SF1 RB0 B0 RB1 U B1\n"
           "                                 ^ U before B1, which it needs\n"},
    Damage{"\"parameter_bytes\": 1607680,\n        \"fixed_bytes\": 6430720",
           "\"parameter_bytes\": 1,\n        \"fixed_bytes\": "
           "9223372036854775807",
           "p: the plan's prediction has times or bytes that are too large. "
           "Delete the prediction: a plan runs without."},
    Damage{"\"steals\": true",
           "\"steals\": 1",
           "p: steals is 1. It must be true or false."},
    Damage{"\"rows\"",
           "\"row\"",
           "p: schedule.row is no known key. Did you mean rows?"},
    Damage{"RB0 B0",
           "RB0 X0",
           "p: schedule.rows[0]: 'X0' is no action of a schedule. Write one of "
           "F, B, W, G, N, U, RF, SF, RB, SB, RT, ST, RV, SV, M, RN, SN, A, C "
           "and the number of the microbatch or bucket, such as F0, with the "
           "stage in front where a rank has several: 2F0."},
    Damage{"\"none\"",
           "\"nothing\"",
           "p: updates.shard_states: there is nothing to shard called "
           "'nothing'. Choose one of: none, optimizer, gradients."},
    Damage{"forward_ms",
           "forwards_ms",
           "p: prediction.stages[0].cost.forwards_ms is no known key. Did you "
           "mean forward_ms?"},
    Damage{"\"format\": 2,",
           "",
           "p is a plan of another version of cleave. Plan again with "
           "cleave plan."},
    Damage{"\"batch\": 64,",
           "",
           "p: batch is missing. Add it: a whole number of at least 1."},
    Damage{"\"rank\": 1,",
           "",
           "p: stages[1].rank is missing. Add it: a whole number from 0 to "
           "2147483647."},
    Damage{"64",
           "\"64\"",
           "p: batch is \"64\". It must be a whole number of at least 1."},
    Damage{"64",
           "6.4",
           "p: batch is 6.4. It must be a whole number of at least 1."},
    Damage{"64",
           "9999999999999999999",
           "p: batch is 9999999999999999999. It must be a whole number of at "
           "least 1."},
    Damage{"\"microbatches\": 2",
           "\"microbatches\": 0",
           "p: schedule.microbatches is 0. It must be a whole number from 1 to "
           "2147483647."},
    Damage{"\"1f1b\"",
           "null",
           "p: schedule.name is null. It must be a text in quotes."},
    Damage{"\"hidden\"",
           "3",
           "p: stages[0].layers is [\"flatten\",3]. It must be a list of texts "
           "in quotes."},
    Damage{"\"layers\": [",
           "\"buckets\": [\"a\"], \"layers\": [",
           "p: stages[0].buckets is [\"a\"]. It must be a list of lists of "
           "texts in quotes."},
    Damage{"2.5",
           "-2.5",
           "p: prediction.stages[0].cost.backward_ms is -2.5. It must be a "
           "number of milliseconds, at least 0."},
    Damage{"20520",
           "-1",
           "p: prediction.stages[1].parameter_bytes is -1. It must be a whole "
           "number of at least 0."},
    Damage{"\"steals\": true",
           "\"batch\": 8",
           "p: the key 'batch' stands twice in one object. Delete one of "
           "them."},
    Damage{"\"mnist\",",
           "\"mnist\"",
           "p is not JSON: parse error at line 4, column 9: syntax error while "
           "parsing object - unexpected string literal; expected '}'. Check "
           "the commas, quotes and brackets there."},
    Damage{"64",
           "1e999",
           "p cannot be read: number overflow parsing '1e999'. Write a smaller "
           "number."},
};

std::string damaged(std::string text, const Damage& damage) {
  const std::size_t at = text.find(damage.from);
  EXPECT_NE(at, std::string::npos) << damage.from;
  return text.replace(
      std::min(at, text.size()), std::string(damage.from).size(), damage.to);
}

TEST(PlanJson, damage_is_an_error_that_names_source_and_key) {
  for (const Damage& damage : kDamages) {
    EXPECT_EQ(error_of([&] { parse_plan(damaged(kText, damage), "p"); }),
              damage.message);
  }
}

TEST(PlanJson, text_that_is_no_object_is_refused) {
  EXPECT_EQ(error_of([] { parse_plan("[1, 2]", "p"); }),
            "p is [1,2]. It must be an object in braces.");
  EXPECT_NE(error_of([] {
              parse_plan("", "p");
            }).find("p is not JSON: parse error at line 1"),
            std::string::npos);
  std::string cut_off = kText;
  cut_off.resize(cut_off.size() / 2);
  EXPECT_NE(error_of([&] { parse_plan(cut_off, "p"); }).find("p is not JSON"),
            std::string::npos);
}

TEST(PlanJson, a_name_that_is_not_utf8_is_an_error) {
  Plan plan = sample();
  plan.model = "\xff";
  EXPECT_EQ(error_of([&] { to_json(plan); }),
            "a name cannot be written as JSON because it is not UTF-8. Use "
            "UTF-8 for the names of models, layers and devices.");
}

TEST(PlanFile, is_replaced_as_a_whole_and_leaves_nothing_else_behind) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "plan.json";
  put(file, "an older and longer text\n" + std::string(9999, '.'));
  save_plan(sample(), file);
  EXPECT_EQ(load_plan(file), sample());
  EXPECT_EQ(folder.count(), 1);
}

TEST(PlanFile, is_named_when_it_cannot_be_written_or_read) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "missing" / "plan.json";
  EXPECT_EQ(error_of([&] { save_plan(sample(), file); }),
            "cannot write " + file.string() +
                ": No such file or directory. Check that the folder exists, "
                "that you may write there and that the disk has room.");
  EXPECT_EQ(error_of([&] { load_plan(file); }),
            "cannot read " + file.string() +
                ". Check that the file exists and may be read.");
  EXPECT_EQ(error_of([&] { load_plan(file.parent_path().parent_path()); }),
            "cannot read " + file.parent_path().parent_path().string() +
                ". Check that the file exists and may be read.");
}

TEST(PlanFile, that_cannot_be_replaced_stays_and_no_other_is_left) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "plan.json";
  std::filesystem::create_directories(file / "in the way");
  EXPECT_NE(error_of([&] { save_plan(sample(), file); }), "no error");
  EXPECT_TRUE(std::filesystem::exists(file / "in the way"));
  EXPECT_EQ(folder.count(), 1);
}

TEST(PlanFile, says_in_which_file_the_mistake_is) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "plan.json";
  put(file, "{}");
  EXPECT_EQ(error_of([&] { load_plan(file); }),
            file.string() +
                ": format is missing. Add it: a whole number from 0 to "
                "2147483647.");
}

}  // namespace
}  // namespace cleave
