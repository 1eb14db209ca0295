#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cleave/data/dataset.h"

// Data that needs no file: for a first try, for tests and for benchmarks.
namespace cleave {

enum class SyntheticTask { classification, regression, tokens, images };

struct SyntheticOptions {
  SyntheticTask task = SyntheticTask::classification;
  std::uint64_t seed = 1;
  std::int64_t train_samples = 4096;
  std::int64_t test_samples = 1024;

  // Standard deviation of what is added to values that vary by about one: to
  // the inputs of classification and images, to the targets of regression.
  // For tokens: the share of them drawn at random. Zero: none.
  double noise = 0.2;

  std::int64_t features = 32;  // classification, regression
  int classes = 10;            // classification, images
  std::int64_t outputs = 1;    // regression
  int vocabulary = 64;         // tokens
  std::int64_t length = 32;    // tokens
  std::int64_t channels = 1;   // images
  std::int64_t height = 28;    // images
  std::int64_t width = 28;     // images
};

// Samples of one task, as their shapes and what there is to learn:
//   classification  [n, features] -> [n]: near one of two centres per class;
//                   told apart without error from about 8 features on
//   regression      [n, features] -> [n, outputs]: a smooth random network
//   tokens          [n, length] -> [n, length]: the next symbol of a Markov
//                   chain in which few symbols are likely to follow each
//   images          [n, channels, height, width] -> [n]: a pattern per class
// Both splits obey the same law but share no sample. Equal options give equal
// bits. Throws Error for sizes that make no sense.
std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options,
                                        Split split);

// "classification", "regression", …
std::vector<std::string_view> synthetic_task_names();

// Throws Error that lists the known names.
SyntheticTask parse_synthetic_task(std::string_view name);

}  // namespace cleave
