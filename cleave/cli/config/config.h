#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cleave/policies.h"
#include "cleave/units.h"

// What the user may set. The members hold the defaults; schema_keys.cpp says
// once, for every key, what it means and what it may be, and the rest (reading,
// writing, --help, the docs) follows from there.
namespace cleave {

struct ModelConfig {
  std::string family = "mlp";
  std::int64_t seed = 0;
  std::int64_t width = 128;
  std::int64_t depth = 4;
  std::int64_t classes = 0;
  double dropout = 0;
  std::int64_t heads = 4;
  std::int64_t context = 32;
  std::int64_t vocabulary = 64;
  bool tied = true;
  std::int64_t head_parts = 1;

  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string source = "synthetic";
  std::string task = "classification";
  std::string path;
  std::int64_t samples = 4096;
  std::int64_t test_samples = 1024;
  std::int64_t features = 32;
  double noise = 0.2;
  std::int64_t seed = 1;
  std::int64_t limit = 0;
  bool shuffle = true;

  bool operator==(const DataConfig&) const = default;
};

struct DevicesConfig {
  std::string use = "cpu:2";
  Bytes memory;  // zero: no limit
  std::int64_t threads = 0;
  bool pin = true;
  Seconds patience{300};

  bool operator==(const DevicesConfig&) const = default;
};

struct ParallelConfig {
  // None: the planner chooses.
  std::optional<int> stages;
  std::optional<int> stages_per_device;
  std::optional<int> replicas = 1;
  std::string shard_states = "none";
  Bytes bucket = kDefaultBucket;
  std::optional<int> microbatches;
  std::string schedule = "auto";
  bool stealing = true;
  std::string plan;

  bool operator==(const ParallelConfig&) const = default;
};

struct TrainConfig {
  std::int64_t batch = 256;
  std::int64_t epochs = 3;
  std::int64_t steps = 0;
  std::string optimizer = "adamw";
  double lr = 1e-3;
  double momentum = 0.9;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  std::string lr_schedule = "constant";
  std::int64_t warmup = 0;
  double min_lr = 0;
  double clip = 0;
  std::string precision = "fp32";
  std::int64_t seed = 0;
  std::int64_t evaluate_every = 1;
  std::string loss = "auto";

  bool operator==(const TrainConfig&) const = default;
};

struct OutputConfig {
  std::string directory = "runs/default";
  bool overwrite = false;
  std::int64_t trace = 0;

  bool operator==(const OutputConfig&) const = default;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  DevicesConfig devices;
  ParallelConfig parallel;
  TrainConfig train;
  OutputConfig output;

  bool operator==(const Config&) const = default;
};

// Dotted keys and their values as typed: {"train.steps", "100"}. Of several
// values for one key the last counts.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// Reads a TOML file, then the overrides on top of it. Throws Error that names
// file and line (or the command line), the key, and what to write instead.
Config load_config(const std::filesystem::path& file,
                   const Overrides& overrides = {});

// The same for TOML text; `source` names it in errors.
Config parse_config(std::string_view toml,
                    const std::string& source,
                    const Overrides& overrides = {});

// Reads "--train.steps 100", "--train.steps=100" and, for a boolean key,
// "--output.overwrite". Throws Error for anything else and for unknown keys.
Overrides parse_overrides(std::span<const std::string> arguments);

// Every key with its value and a comment; parse_config() gives it back.
std::string to_toml(const Config& config);

// Every key with its meaning and default, by section: for --help.
std::string help_for_keys();

// The same and its type, as a Markdown table per section: for the docs.
std::string markdown_for_keys();

}  // namespace cleave
