#include "cleave/cli/config/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "cleave/cli/config/schema.h"
#include "cleave/nearest.h"
#include "cleave/schedule/generators/registry.h"

namespace cleave {
namespace {

// How often `part` stands in `text`.
int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// A config in which no key has its default.
Config unusual() {
  Config config;
  config.model = {"gpt", 7, 96, 5, 3, 0.1, 6, 48, 500, false, 4};
  config.data = {
      "fashion-mnist", "tokens", "C:\\\"x\"\n\tü", 5, 6, 7, 1e-9, 8, 9, false};
  config.devices = {"cuda:0,1", Bytes{(3LL << 30) + 1}, 3, false, {0.1}};
  config.parallel = {
      4, 2, 2, "optimizer", Bytes{1 << 20}, 16, "gpipe", false, "plan.json"};
  config.train = {1,
                  2,
                  9223372036854775807,
                  "sgd",
                  1.0 / 3,
                  0.5,
                  1e300,
                  0.25,
                  0.95,
                  "cosine",
                  10,
                  1e-5,
                  123456789012345678901.0,
                  "bf16",
                  42,
                  0,
                  "mse"};
  config.output = {"runs/other", true, 3};
  return config;
}

TEST(Config, nothing_written_is_the_default) {
  EXPECT_EQ(parse_config("", "empty"), Config{});
}

TEST(Config, what_is_written_is_read) {
  const Config config = parse_config(R"(
[model]
family = "gpt"
tied = false
[devices]
use = "cpu:4"
memory = "2GiB"
patience = 5
[parallel]
stages = "auto"
microbatches = 8
[train]
batch = 1_000
lr = 1e-4
)",
                                     "run.toml");
  Config expected;
  expected.model.family = "gpt";
  expected.model.tied = false;
  expected.devices.use = "cpu:4";
  expected.devices.memory = Bytes{2LL << 30};
  expected.devices.patience = Seconds{5};
  expected.parallel.microbatches = 8;
  expected.train.batch = 1000;
  expected.train.lr = 1e-4;
  EXPECT_EQ(config, expected);
}

TEST(Config, what_to_toml_writes_reads_back_as_the_same) {
  for (const Config& config : {Config{}, unusual()}) {
    EXPECT_EQ(parse_config(to_toml(config), "written"), config)
        << to_toml(config);
  }
}

TEST(Config, the_round_trip_is_tested_with_every_key_changed) {
  Config defaults;
  Config changed = unusual();
  for (const Key& key : config_keys()) {
    const bool differs = std::visit(
        [&](auto* value) {
          using Pointer = decltype(value);
          return *value != *std::get<Pointer>(key.slot(changed));
        },
        key.slot(defaults));
    EXPECT_TRUE(differs) << key.dotted;
  }
}

TEST(Config, the_written_form_reads_like_a_person_wrote_it) {
  const std::string text = to_toml(Config{});
  EXPECT_EQ(text.find("[model]                         # the network\n"
                      "family = \"mlp\"                  # the kind of network"
                      ": mlp, convnet, resnet, gpt\n"
                      "seed = 0                        # seed of the "
                      "initial weights\n"),
            0U)
      << text;
  EXPECT_NE(text.find("\n\n[parallel]"), std::string::npos);
  EXPECT_NE(text.find("\nstages = \"auto\" "), std::string::npos);
  EXPECT_NE(text.find("\nmemory = \"\" "), std::string::npos);
}

TEST(Config, overrides_win_over_the_file_and_the_last_one_wins) {
  const Config config = parse_config("[train]\nbatch = 1\nsteps = 2",
                                     "run.toml",
                                     {{"train.batch", "64"},
                                      {"train.lr", "1"},
                                      {"train.batch", "128"},
                                      {"model.family", "convnet"},
                                      {"model.tied", "false"},
                                      {"devices.memory", "1GiB"},
                                      {"output.directory", "42"},
                                      {"parallel.stages", "3"},
                                      {"parallel.microbatches", "auto"}});
  Config expected;
  expected.train.batch = 128;
  expected.train.steps = 2;
  expected.train.lr = 1;
  expected.model.family = "convnet";
  expected.model.tied = false;
  expected.devices.memory = Bytes{1 << 30};
  expected.output.directory = "42";
  expected.parallel.stages = 3;
  EXPECT_EQ(config, expected);
}

TEST(Config, arguments_give_a_value_behind_a_space_or_an_equals_sign) {
  const std::vector<std::string> arguments{"--train.steps",
                                           "100",
                                           "--train.lr=1e-3",
                                           "--output.overwrite",
                                           "--data.path=a=b",
                                           "--parallel.plan=",
                                           "--train.clip",
                                           "-1",
                                           "--data.shuffle"};
  const Overrides expected{{"train.steps", "100"},
                           {"train.lr", "1e-3"},
                           {"output.overwrite", "true"},
                           {"data.path", "a=b"},
                           {"parallel.plan", ""},
                           {"train.clip", "-1"},
                           {"data.shuffle", "true"}};
  EXPECT_EQ(parse_overrides(arguments), expected);
}

TEST(Config, help_and_docs_list_every_key_once) {
  const std::string help = help_for_keys();
  for (const Key& key : config_keys()) {
    EXPECT_EQ(count(help, "--" + std::string(key.dotted) + " "), 1)
        << key.dotted;
    EXPECT_FALSE(key.help.empty()) << key.dotted;
  }
  EXPECT_EQ(count(help, "--"), std::ssize(config_keys()));
  EXPECT_EQ(count(markdown_for_keys(), "\n| `"),
            std::ssize(config_keys()) + std::ssize(kSchedules));
}

TEST(Config, the_page_in_docs_is_the_table_of_the_program) {
  std::ifstream file(CLEAVE_SOURCE_DIR "/docs/configuration.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(page.find(markdown_for_keys()), std::string::npos)
      << "It must hold:\n"
      << markdown_for_keys();
}

TEST(Config, help_shows_meaning_limits_and_default) {
  const std::string help = help_for_keys();
  EXPECT_NE(help.find("[train] how it learns\n"
                      "  --train.batch                   samples in one step; "
                      "at least 1 [256]\n"),
            std::string::npos)
      << help;
}

TEST(Schema, every_key_has_its_own_slot_and_a_section) {
  Config config;
  std::set<const void*> slots;
  std::set<std::string_view> names;
  for (const Key& key : config_keys()) {
    slots.insert(std::visit([](auto* value) -> const void* { return value; },
                            key.slot(config)));
    names.insert(key.dotted);
    EXPECT_TRUE(is_section(key.section())) << key.dotted;
  }
  EXPECT_EQ(slots.size(), config_keys().size());
  EXPECT_EQ(names.size(), config_keys().size());
}

TEST(Examples, every_example_is_a_configuration) {
  int examples = 0;
  const std::filesystem::path folder =
      std::filesystem::path(CLEAVE_SOURCE_DIR) / "examples";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".toml") {
      ++examples;
      EXPECT_NO_THROW(load_config(entry.path())) << entry.path();
    }
  }
  EXPECT_GE(examples, 4);
}

TEST(Nearest, a_typing_mistake_is_near_and_another_word_is_not) {
  const std::vector<std::string_view> words{"batch", "epochs", "lr", "steps"};
  EXPECT_EQ(nearest("epoch", words), "epochs");
  EXPECT_EQ(nearest("bacth", words), "batch");
  EXPECT_EQ(nearest("STEPS", words), "steps");
  EXPECT_EQ(nearest("l", words), "lr");
  EXPECT_EQ(nearest("optimizer", words), "");
  EXPECT_EQ(nearest("", words), "");
}

TEST(Nearest, distance_counts_edits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("mlp", "mlp"), 0);
  EXPECT_EQ(edit_distance("mpl", "mlp"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
}

}  // namespace
}  // namespace cleave
