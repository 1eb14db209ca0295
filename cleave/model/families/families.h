#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/model/model.h"

namespace cleave {

// The options of the built-in families. Each uses some of it; 0 asks for the
// family's own default.
struct FamilyOptions {
  std::vector<std::int64_t> input;  // shape of one sample
  std::int64_t outputs = 10;        // classes, or numbers to predict
  std::int64_t width = 0;           // units, channels or embedding size
  std::int64_t depth = 0;           // hidden layers or blocks
  std::int64_t heads = 0;           // gpt: attention heads
  std::int64_t context = 0;         // gpt: longest sequence
  std::int64_t vocabulary = 0;      // gpt: number of tokens
  double dropout = 0;
  bool tied = true;             // gpt: the head shares the embedding's weight
  std::int64_t head_parts = 1;  // gpt: layers that the head is cut into
  std::uint64_t seed = 0;
};

struct Family {
  std::string_view name;
  Model (*make)(const FamilyOptions& options);
};

// All built-in families.
std::span<const Family> families();

// Makes a model of the family called `name`. Throws Error that lists the
// known ones, or what the options lack.
Model make_model(std::string_view name, const FamilyOptions& options);

// Fully connected: flatten, depth x (linear, relu, dropout), linear.
Model mlp(const FamilyOptions& options);

// Convolutions with batch norm and pooling, then two linear layers.
Model convnet(const FamilyOptions& options);

// Residual blocks whose skips are values of their own, so that a cut may fall
// inside a block.
Model resnet(const FamilyOptions& options);

// A decoder-only transformer; attention and MLP are layers of their own, and
// so are the sums with the residual.
Model gpt(const FamilyOptions& options);

}  // namespace cleave
