#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "cleave/cli/config/config.h"
#include "cleave/error.h"

namespace cleave {
namespace {

// The message of the error that `read` throws; empty when it throws none.
template <class Read>
std::string message_of(Read read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct BadFile {
  const char* toml;
  const char* message;
};

constexpr auto kBadFiles = std::to_array<BadFile>({
    // Unknown names.
    {"[train]\nepoch = 3",
     "run.toml:2: unknown key train.epoch. Did you mean train.epochs?"},
    {"[train]\n\n\nBatch = 3",
     "run.toml:4: unknown key train.Batch. Did you mean train.batch?"},
    {"[train]\nfamily = \"mlp\"",
     "run.toml:2: unknown key train.family. Did you mean model.family?"},
    {"[parallel]\nshard = \"none\"",
     "run.toml:2: parallel.shard is now parallel.shard_states. Change the "
     "name; its values are the same."},
    {"[output]\nseed = 1",
     "run.toml:2: unknown key output.seed. Did you mean model.seed, data.seed "
     "or train.seed?"},
    {"[output]\nepoch = 1",
     "run.toml:2: unknown key output.epoch. Did you mean train.epochs?"},
    {"[output]\nfoo = 1",
     "run.toml:2: unknown key output.foo. [output] has directory, overwrite "
     "and "
     "trace."},
    {"[output.foo]\nbar = 1",
     "run.toml:1: unknown key output.foo. [output] has directory, overwrite "
     "and "
     "trace."},
    {"[trian]\nbatch = 3",
     "run.toml:1: unknown section trian. Did you mean train?"},
    {"[optimization]\nlr = 3",
     "run.toml:1: unknown section optimization. The sections are model, data, "
     "devices, parallel, train and output."},
    {"batch = 3",
     "run.toml:1: key batch stands outside every section. Did you mean "
     "train.batch?"},
    {"zzz = 3",
     "run.toml:1: key zzz stands outside every section. The sections are "
     "model, data, devices, parallel, train and output."},
    {"train = 3",
     "run.toml:1: train must be a section, found an integer. Write [train] on "
     "a line of its own, its keys below."},
    {"[[train]]\nbatch = 3",
     "run.toml:1: train must be a section, found an array. Write [train] on a "
     "line of its own, its keys below."},

    // Wrong types.
    {"[train]\nbatch = \"256\"",
     "run.toml:2: train.batch must be an integer, found a string. Write it "
     "like batch = 256."},
    {"[train]\nbatch = 1e3",
     "run.toml:2: train.batch must be an integer, found a float. Write it like "
     "batch = 256."},
    {"[train]\nbatch = true",
     "run.toml:2: train.batch must be an integer, found a boolean. Write it "
     "like batch = 256."},
    {"[train]\nbatch = [1, 2]",
     "run.toml:2: train.batch must be an integer, found an array. Write it "
     "like batch = 256."},
    {"[train]\nbatch.size = 3",
     "run.toml:2: train.batch must be an integer, found a table. Write it like "
     "batch = 256."},
    {"[train]\nbatch = 1979-05-27",
     "run.toml:2: train.batch must be an integer, found a date or time. Write "
     "it like batch = 256."},
    {"[train]\nlr = \"fast\"",
     "run.toml:2: train.lr must be a number, found a string. Write it like lr "
     "= 0.001."},
    {"[model]\nfamily = 3",
     "run.toml:2: model.family must be a string, found an integer. Write it "
     "like family = \"mlp\"."},
    {"[data]\npath = false",
     "run.toml:2: data.path must be a string, found a boolean. Write it like "
     "path = \"text\"."},
    {"[data]\nshuffle = \"yes\"",
     "run.toml:2: data.shuffle must be true or false, found a string. Write it "
     "like shuffle = true."},
    {"[devices]\nmemory = 2",
     "run.toml:2: devices.memory must be an amount of memory, found an "
     "integer. Write it like memory = \"2GiB\"."},
    {"[devices]\nmemory = \"2 gigs\"",
     "run.toml:2: devices.memory must be an amount of memory, found \"2 "
     "gigs\". Write it like memory = \"2GiB\"."},
    {"[devices]\nmemory = \"0GiB\"",
     "run.toml:2: devices.memory must be above zero, or empty, found \"0GiB\". "
     "Write it like memory = \"2GiB\"."},
    {"[parallel]\nstages = \"many\"",
     "run.toml:2: parallel.stages must be \"auto\" or an integer, found "
     "\"many\". Write it like stages = \"auto\"."},
    {"[parallel]\nstages = 2.0",
     "run.toml:2: parallel.stages must be \"auto\" or an integer, found a "
     "float. Write it like stages = \"auto\"."},

    // Values that are not allowed.
    {"[train]\nbatch = 0",
     "run.toml:2: train.batch must be at least 1, found 0. Write it like batch "
     "= 256."},
    {"[train]\nlr = 0",
     "run.toml:2: train.lr must be above 0, found 0. Write it like lr = "
     "0.001."},
    {"[train]\nlr = inf",
     "run.toml:2: train.lr must be a finite number, found inf. Write it like "
     "lr = 0.001."},
    {"[train]\nlr = nan",
     "run.toml:2: train.lr must be a finite number, found nan. Write it like "
     "lr = 0.001."},
    {"[model]\ndropout = 1.0",
     "run.toml:2: model.dropout must be at least 0 and below 1, found 1. Write "
     "it like dropout = 0.0."},
    {"[parallel]\nstages = 0",
     "run.toml:2: parallel.stages must be at least 1 and at most 65536, found "
     "0. Write it like stages = \"auto\"."},
    {"[parallel]\nmicrobatches = 4294967297",
     "run.toml:2: parallel.microbatches must be at least 1 and at most 65536, "
     "found 4294967297. Write it like microbatches = \"auto\"."},
    {"[model]\nfamily = \"mpl\"",
     "run.toml:2: model.family cannot be \"mpl\". Choose \"mlp\", \"gpt\", "
     "\"resnet\" or \"convnet\"."},
    {"[train]\noptimizer = \"SGD\"",
     "run.toml:2: train.optimizer cannot be \"SGD\". Choose \"sgd\" or "
     "\"adamw\"."},
    {"[train]\nprecision = \"fp64\"",
     "run.toml:2: train.precision cannot be \"fp64\". Choose \"fp32\" or "
     "\"bf16\"."},

    // What is not TOML.
    {"[train]\nbatch = ",
     "run.toml:2:9: this is not TOML: Error while parsing key-value pair: "
     "encountered end-of-file. Correct that line; text needs quotes."},
    {"[model]\nfamily = mlp",
     "run.toml:2:10: this is not TOML: Error while parsing value: could not "
     "determine value type. Correct that line; text needs quotes."},
});

TEST(ConfigErrors, every_bad_file_is_answered_with_place_problem_and_fix) {
  for (const BadFile& bad : kBadFiles) {
    EXPECT_EQ(message_of([&] { parse_config(bad.toml, "run.toml"); }),
              bad.message)
        << bad.toml;
  }
}

TEST(ConfigErrors, a_key_that_is_given_twice_is_refused_at_its_second_place) {
  const std::string message = message_of([] {
    parse_config("[train]\nbatch = 1\nlr = 0.1\nbatch = 2", "run.toml");
  });
  EXPECT_EQ(message.find("run.toml:4:9: this is not TOML:"), 0U) << message;
}

struct BadOverride {
  const char* key;
  const char* value;
  const char* message;
};

constexpr auto kBadOverrides = std::to_array<BadOverride>({
    {"train.epoch",
     "3",
     "command line: unknown key train.epoch. Did you mean train.epochs?"},
    {"batch",
     "3",
     "command line: unknown key batch. Did you mean train.batch?"},
    {"parallel.shard",
     "optimizer",
     "command line: parallel.shard is now parallel.shard_states. Change the "
     "name; its values are the same."},
    {"trian.batch",
     "3",
     "command line: unknown key trian.batch. Did you mean train.batch?"},
    {"trian.zzz",
     "3",
     "command line: unknown key trian.zzz. Did you mean train?"},
    {"train",
     "3",
     "command line: train is a section, not a key. Name one of its keys, as in "
     "--train.steps 100."},
    {"train.batch",
     "many",
     "command line: train.batch must be an integer, found \"many\". Write it "
     "like --train.batch 256."},
    {"train.batch",
     "99999999999999999999",
     "command line: train.batch must be an integer, found "
     "\"99999999999999999999\". Write it like --train.batch 256."},
    {"train.batch",
     "",
     "command line: train.batch must be an integer, found \"\". Write it like "
     "--train.batch 256."},
    {"train.lr",
     "-1",
     "command line: train.lr must be above 0, found -1. Write it like "
     "--train.lr 0.001."},
    {"model.tied",
     "yes",
     "command line: model.tied must be true or false, found \"yes\". Write it "
     "like --model.tied true."},
    {"devices.memory",
     "lots",
     "command line: devices.memory must be an amount of memory, found "
     "\"lots\". Write it like --devices.memory 2GiB."},
    {"parallel.schedule",
     "gpip",
     "command line: parallel.schedule cannot be \"gpip\". Choose \"gpipe\", "
     "\"auto\", \"1f1b\", \"zb-v\", \"zb-h1\", \"zb-h2\" or "
     "\"interleaved\"."},
});

TEST(ConfigErrors, every_bad_override_is_answered_with_problem_and_fix) {
  for (const BadOverride& bad : kBadOverrides) {
    EXPECT_EQ(message_of([&] {
                parse_config("", "run.toml", {{bad.key, bad.value}});
              }),
              bad.message)
        << bad.key;
  }
}

struct BadArguments {
  std::vector<std::string> arguments;
  const char* message;
};

TEST(ConfigErrors, every_bad_argument_is_answered_with_problem_and_fix) {
  const std::vector<BadArguments> all_bad{
      {{"--train.steps"},
       "command line: train.steps has no value. Write it like --train.steps "
       "0."},
      {{"--train.steps", "--train.batch", "3"},
       "command line: train.steps has no value. Write it like --train.steps "
       "0."},
      {{"100"},
       "command line: unexpected argument \"100\". Write a key and its value, "
       "as in --train.steps 100."},
      {{"--train.step", "100"},
       "command line: unknown key train.step. Did you mean train.steps?"},
      {{"--verbose"},
       "command line: unknown key verbose. The sections are model, data, "
       "devices, parallel, train and output."},
  };
  for (const BadArguments& bad : all_bad) {
    EXPECT_EQ(message_of([&] { parse_overrides(bad.arguments); }), bad.message);
  }
}

TEST(ConfigErrors, a_missing_file_is_named) {
  EXPECT_EQ(message_of([] { load_config("no/such.toml"); }),
            "there is no file no/such.toml. Check the path of the "
            "configuration.");
}

TEST(ConfigErrors, a_folder_is_no_configuration) {
  const std::string folder = CLEAVE_SOURCE_DIR;
  EXPECT_EQ(message_of([&] { load_config(folder); }),
            "cannot read " + folder + ". Name a TOML file that you may read.");
}

TEST(ConfigErrors, errors_in_a_file_name_the_file) {
  const std::string file = testing::TempDir() + "cleave_bad_config.toml";
  std::ofstream(file) << "[train]\nbatch = -1\n";
  EXPECT_EQ(message_of([&] { load_config(file); }).find(file + ":2: "), 0U);
}

}  // namespace
}  // namespace cleave
