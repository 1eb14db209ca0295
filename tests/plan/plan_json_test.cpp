#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include "cleave/error.h"
#include "cleave/plan/plan.h"
#include "cleave/plan/profile.h"

namespace cleave {
namespace {

constexpr const char* kText = R"({
  "model": "mnist",
  "batch": 64,
  "replicas": 1,
  "microbatches": 8,
  "shard": "none",
  "schedule": "1f1b",
  "lend": true,
  "moving": 0.25,
  "stages": [
    {
      "device": "cpu:0",
      "layers": [
        "flatten",
        "hidden"
      ],
      "forward_ms": 1.25,
      "backward_ms": 2.5,
      "weight_ms": 1.5,
      "update_ms": 0.75,
      "message_ms": 0.005,
      "parameter_bytes": 1607680,
      "fixed_bytes": 6430720,
      "leaving_bytes": 700,
      "returning_bytes": 0,
      "shared_bytes": 0,
      "activation_bytes": 1000,
      "kept_for_weights_bytes": 500,
      "forward_need_bytes": 300,
      "backward_need_bytes": 40,
      "whole_need_bytes": 30,
      "first_whole_need_bytes": 35,
      "weight_need_bytes": 250,
      "first_weight_need_bytes": 260,
      "gradient_bytes": 200,
      "sum_bytes": 100,
      "memory_bytes": 10000000,
      "peak_bytes": 9000000
    },
    {
      "device": "cpu:1",
      "layers": [
        "out"
      ],
      "forward_ms": 0.1,
      "backward_ms": 0.000001,
      "weight_ms": 0.0,
      "update_ms": 0.0,
      "message_ms": 0.0,
      "parameter_bytes": 20520,
      "fixed_bytes": 0,
      "leaving_bytes": 0,
      "returning_bytes": 1400,
      "shared_bytes": 1450,
      "activation_bytes": 0,
      "kept_for_weights_bytes": 0,
      "forward_need_bytes": 0,
      "backward_need_bytes": 0,
      "whole_need_bytes": 0,
      "first_whole_need_bytes": 0,
      "weight_need_bytes": 0,
      "first_weight_need_bytes": 0,
      "gradient_bytes": 0,
      "sum_bytes": 0,
      "memory_bytes": 0,
      "peak_bytes": 100000
    }
  ],
  "predicted": {
    "step_ms": 33.3,
    "bubble": 0.125
  }
}
)";

Plan sample() {
  return {.model = "mnist",
          .batch = 64,
          .microbatches = 8,
          .schedule = "1f1b",
          .lend = true,
          .moving = 0.25,
          .stages = {{.device = "cpu:0",
                      .layers = {"flatten", "hidden"},
                      .forward = {0.00125},
                      .backward = {0.0025},
                      .weight = {0.0015},
                      .update = {0.00075},
                      .message = {0.000005},
                      .parameters = {1607680},
                      .fixed = {6430720},
                      .leaving = {700},
                      .activations = {1000},
                      .kept_for_weights = {500},
                      .forward_need = {300},
                      .backward_need = {40},
                      .whole_need = {30},
                      .first_whole_need = {35},
                      .weight_need = {250},
                      .first_weight_need = {260},
                      .gradients = {200},
                      .sums = {100},
                      .memory = {10000000},
                      .peak = {9000000}},
                     {.device = "cpu:1",
                      .layers = {"out"},
                      .forward = {0.0001},
                      .backward = {1e-9},
                      .parameters = {20520},
                      .returning = {1400},
                      .shared = {1450},
                      .peak = {100000}}},
          .step = {0.0333},
          .bubble = 0.125};
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanJson, is_text_a_person_can_read_and_edit) {
  std::string expected = kText;
  expected.replace(expected.find("0.000001"), 8, "1e-06");
  EXPECT_EQ(to_json(sample()), expected);
  EXPECT_EQ(parse_plan(kText, "plan.json"), sample());
}

class RandomValues {
 public:
  std::int64_t whole(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  // Whole picoseconds, of any size up to an hour.
  Seconds time() {
    const std::int64_t most = std::int64_t{1} << whole(0, 51);
    return {static_cast<double>(whole(0, most)) / 1e12};
  }
  double share() { return std::uniform_real_distribution<>(0, 1)(random_); }
  Bytes bytes() { return {whole(0, INT64_MAX)}; }
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

TEST(PlanJson, reading_gives_back_exactly_what_was_written) {
  RandomValues random;
  for (int i = 0; i < 500; ++i) {
    Plan plan{.model = random.name(),
              .batch = random.whole(1000, INT64_MAX),
              .microbatches = static_cast<int>(random.whole(1, 1000)),
              .schedule = random.name(),
              .lend = random.whole(0, 1) == 1,
              .stages = {},
              .step = random.time(),
              .bubble = random.share()};
    for (std::int64_t s = random.whole(0, 4); s > 0; --s) {
      plan.stages.push_back({.device = random.name(),
                             .core = static_cast<int>(random.whole(-1, 3)),
                             .layers = {random.name(), random.name()},
                             .forward = random.time(),
                             .backward = random.time(),
                             .weight = random.time(),
                             .update = random.time(),
                             .message = random.time(),
                             .parameters = random.bytes(),
                             .fixed = random.bytes(),
                             .leaving = random.bytes(),
                             .returning = random.bytes(),
                             .shared = random.bytes(),
                             .activations = random.bytes(),
                             .kept_for_weights = random.bytes(),
                             .forward_need = random.bytes(),
                             .backward_need = random.bytes(),
                             .whole_need = random.bytes(),
                             .first_whole_need = random.bytes(),
                             .weight_need = random.bytes(),
                             .first_weight_need = random.bytes(),
                             .gradients = random.bytes(),
                             .sums = random.bytes(),
                             .memory = random.bytes(),
                             .peak = random.bytes()});
    }
    ASSERT_EQ(parse_plan(to_json(plan), "plan"), plan) << to_json(plan);
  }
}

TEST(PlanJson, a_plan_that_was_made_survives_exactly) {
  Profile profile{.model = "net", .microbatch = 3, .device = "", .layers = {}};
  for (int i = 1; i < 9; ++i) {  // thirds and sevenths: no short decimals
    profile.layers.push_back({.name = std::to_string(i),
                              .forward = {i / 3.0},
                              .backward = {i / 7.0}});
  }
  const Plan plan = make_plan(profile,
                              {{.name = "a", .speed = 0.7}, {.name = "b"}},
                              {.batch = 10, .stages = 2});
  EXPECT_EQ(parse_plan(to_json(plan), "plan"), plan);
}

TEST(PlanJson, what_is_predicted_may_be_left_out) {
  const Plan plan = parse_plan(
      R"({"model": "m", "batch": 8, "microbatches": 2, "schedule": "gpipe",
          "stages": [{"device": "cpu:0", "layers": ["a", "b"]}]})",
      "hand.json");
  EXPECT_EQ(plan,
            (Plan{.model = "m",
                  .batch = 8,
                  .microbatches = 2,
                  .schedule = "gpipe",
                  .stages = {{.device = "cpu:0", .layers = {"a", "b"}}}}));
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
    Damage{"\"predicted\"",
           "\"comment\"",
           "p: comment is no known key. The known ones are: model, batch, "
           "replicas, microbatches, shard, schedule, lend, moving, stages, "
           "predicted, "
           "compared."},
    Damage{"\"device\": \"cpu:1\"",
           "\"devices\": \"cpu:1\"",
           "p: stages[1].devices is no known key. Did you mean device?"},
    Damage{"\"lend\": true",
           "\"lend\": 1",
           "p: lend is 1. It must be true or false."},
    Damage{"step_ms",
           "steps_ms",
           "p: predicted.steps_ms is no known key. Did you mean step_ms?"},
    Damage{"\"batch\": 64,",
           "",
           "p: batch is missing. Add it: a whole number of at least 1."},
    Damage{"\"device\": \"cpu:1\",",
           "",
           "p: stages[1].device is missing. Add it: a text in quotes."},
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
    Damage{"\"microbatches\": 8",
           "\"microbatches\": 65",
           "p: microbatches is 65. It must be a whole number from 1 to 64."},
    Damage{"\"microbatches\": 8",
           "\"microbatches\": 0",
           "p: microbatches is 0. It must be a whole number from 1 to 64."},
    Damage{"\"1f1b\"",
           "null",
           "p: schedule is null. It must be a text in "
           "quotes."},
    Damage{"\"hidden\"",
           "3",
           "p: stages[0].layers is [\"flatten\",3]. It must be a list of texts "
           "in quotes."},
    Damage{"2.5",
           "-2.5",
           "p: stages[0].backward_ms is -2.5. It must be a number of "
           "milliseconds, at least 0."},
    Damage{"20520",
           "-1",
           "p: stages[1].parameter_bytes is -1. It must be a whole number of "
           "at least 0."},
    Damage{"0.125",
           "1.5",
           "p: predicted.bubble is 1.5. It must be a number from 0 to 1."},
    Damage{"\"schedule\": \"1f1b\"",
           "\"batch\": 8",
           "p: the key 'batch' stands twice in one object. Delete one of "
           "them."},
    Damage{"\"mnist\",",
           "\"mnist\"",
           "p is not JSON: parse error at line 3, column 9: syntax error while "
           "parsing object - unexpected string literal; expected '}'. Check "
           "the commas, quotes and brackets there."},
    Damage{"64",
           "1e999",
           "p cannot be read: number overflow parsing '1e999'. Write a smaller "
           "number."},
};

TEST(PlanJson, damage_is_an_error_that_names_source_and_key) {
  for (const Damage& damage : kDamages) {
    std::string text = kText;
    const std::size_t at = text.find(damage.from);
    ASSERT_NE(at, std::string::npos) << damage.from;
    text.replace(at, std::string(damage.from).size(), damage.to);
    EXPECT_EQ(error_of([&] { parse_plan(text, "p"); }), damage.message);
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

class PlanFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("cleave_plan_") + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(PlanFile, is_replaced_as_a_whole_and_leaves_nothing_else_behind) {
  const std::filesystem::path file = folder_ / "plan.json";
  std::ofstream(file) << "an older and longer text\n" << std::string(9999, '.');
  save_plan(sample(), file);
  EXPECT_EQ(load_plan(file), sample());
  const std::filesystem::directory_iterator files(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(PlanFile, is_named_when_it_cannot_be_written_or_read) {
  const std::filesystem::path file = folder_ / "missing" / "plan.json";
  EXPECT_EQ(error_of([&] { save_plan(sample(), file); }),
            "cannot write " + file.string() +
                ": No such file or directory. Check that the folder exists, "
                "that you may write there and that the disk has room.");
  EXPECT_EQ(error_of([&] { load_plan(file); }),
            "cannot read " + file.string() +
                ". Check that the file exists and may be read.");
  EXPECT_EQ(error_of([&] { load_plan(folder_); }),
            "cannot read " + folder_.string() +
                ". Check that the file exists and may be read.");
}

TEST_F(PlanFile, that_cannot_be_replaced_stays_and_no_other_is_left) {
  const std::filesystem::path file = folder_ / "plan.json";
  std::filesystem::create_directories(file / "in the way");
  EXPECT_NE(error_of([&] { save_plan(sample(), file); }), "no error");
  EXPECT_TRUE(std::filesystem::exists(file / "in the way"));
  const std::filesystem::directory_iterator files(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(PlanFile, says_in_which_file_the_mistake_is) {
  const std::filesystem::path file = folder_ / "plan.json";
  std::ofstream(file) << "{}";
  EXPECT_EQ(error_of([&] { load_plan(file); }),
            file.string() + ": model is missing. Add it: a text in quotes.");
}

TEST(ProfileJson, reading_gives_back_exactly_what_was_written) {
  RandomValues random;
  for (int i = 0; i < 200; ++i) {
    Profile profile{.model = random.name(),
                    .microbatch = random.whole(1, INT64_MAX),
                    .device = random.name(),
                    .measured = static_cast<int>(random.whole(0, 100)),
                    .spread = 1.0 / static_cast<double>(random.whole(1, 100)),
                    .uneven = 1.0 / static_cast<double>(random.whole(1, 100)),
                    .moving = 1.0 / static_cast<double>(random.whole(1, 100)),
                    .overhead = {random.time(),
                                 random.time(),
                                 random.time(),
                                 random.time()},
                    .foreign = {random.bytes(), random.time(), random.time()},
                    .layers = {}};
    for (std::int64_t s = random.whole(0, 4); s > 0; --s) {
      profile.layers.push_back({.name = random.name(),
                                .forward = random.time(),
                                .backward = random.time(),
                                .parameters = random.bytes(),
                                .activations = random.bytes() - random.bytes(),
                                .crossing = random.bytes(),
                                .loose = random.bytes()});
    }
    ASSERT_EQ(parse_profile(to_json(profile), "profile"), profile);
  }
}

TEST(ProfileJson, every_cost_must_be_there) {
  EXPECT_EQ(error_of([] {
              parse_profile(
                  R"({"model": "m", "microbatch": 1, "device": "cpu",
                      "measured": 1, "layers": [{"name": "a",
                      "forward_ms": 1, "backward_ms": 2,
                      "parameter_bytes": 3, "crossing_bytes": 4}]})",
                  "profile.json");
            }),
            "profile.json: layers[0].activation_bytes is missing. Add it: a "
            "whole number.");
}

TEST_F(PlanFile, of_a_profile_can_be_saved_and_used_again) {
  const Profile profile{.model = "net",
                        .microbatch = 4,
                        .device = "cpu:0",
                        .measured = 1,
                        .layers = {{.name = "a", .forward = {0.001}}}};
  save_profile(profile, folder_ / "profile.json");
  EXPECT_EQ(load_profile(folder_ / "profile.json"), profile);
}

}  // namespace
}  // namespace cleave
