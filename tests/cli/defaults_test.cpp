// What the program's keys say by default, and what the library's structs do, is
// one thing; so are the words a key knows and the library's tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cleave/cli/config/schema.h"
#include "cleave/data/sources.h"
#include "cleave/device/device.h"
#include "cleave/model/families/families.h"
#include "cleave/optimizer/training.h"
#include "cleave/plan/plan.h"
#include "cleave/train/trainer.h"

namespace cleave {
namespace {

std::set<std::string> words_of(const char* key) {
  const std::span<const std::string_view> words = find_key(key)->limits.words;
  return {words.begin(), words.end()};
}

template <class Table>
std::set<std::string> names_in(const Table& table) {
  std::set<std::string> names;
  for (const auto& row : table) {
    names.insert(std::string(row.name));
  }
  return names;
}

TEST(Defaults, of_training_are_the_librarys) {
  const TrainConfig train;
  EXPECT_EQ(train.momentum, Sgd{}.momentum);
  EXPECT_EQ(train.beta1, AdamW{}.beta1);
  EXPECT_EQ(train.beta2, AdamW{}.beta2);
  EXPECT_EQ(train.weight_decay, AdamW{}.weight_decay);
  EXPECT_EQ(train.lr, Training{}.learning_rate(1));
  EXPECT_EQ(train.clip, Training{}.clip);
  EXPECT_EQ(static_cast<std::uint64_t>(train.seed), Training{}.seed);
  EXPECT_EQ(precision_named(train.precision), Training{}.precision);
  EXPECT_EQ(train.steps, FitOptions{}.steps);
}

TEST(Defaults, of_plans_and_devices_are_the_librarys) {
  const ParallelConfig parallel;
  EXPECT_EQ(parallel.bucket, Training{}.bucket);
  EXPECT_EQ(parallel.schedule, PlanRequest{}.schedule);
  EXPECT_EQ(parallel.stealing, PlanRequest{}.steals);
  EXPECT_EQ(parallel.replicas, PlanRequest{}.replicas);
  EXPECT_EQ(shard_states_named(parallel.shard_states),
            PlanRequest{}.shard_states);
  const DevicesConfig devices;
  EXPECT_EQ(devices.patience, Training{}.patience);
  EXPECT_EQ(devices.pin, DeviceOptions{}.pin);
  EXPECT_EQ(devices.memory, DeviceOptions{}.memory);
}

TEST(Defaults, of_synthetic_data_are_the_librarys) {
  const DataConfig data;
  const SyntheticOptions synthetic;
  EXPECT_EQ(data.samples, synthetic.train_samples);
  EXPECT_EQ(data.test_samples, synthetic.test_samples);
  EXPECT_EQ(data.features, synthetic.features);
  EXPECT_EQ(data.noise, synthetic.noise);
  EXPECT_EQ(static_cast<std::uint64_t>(data.seed), synthetic.seed);
}

TEST(Words, of_keys_are_those_of_the_tables) {
  EXPECT_EQ(words_of("model.family"), names_in(families()));
  EXPECT_EQ(words_of("data.source"), names_in(data_sources()));
  for (const std::string& task : words_of("data.task")) {
    EXPECT_NO_THROW(parse_synthetic_task(task)) << task;
  }
  for (const std::string& precision : words_of("train.precision")) {
    EXPECT_NO_THROW(precision_named(precision)) << precision;
  }
  for (const std::string& loss : words_of("train.loss")) {
    if (loss != "auto") {
      EXPECT_NO_THROW(loss_named(loss)) << loss;
    }
  }
}

}  // namespace
}  // namespace cleave
