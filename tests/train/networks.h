#pragma once

#include <torch/torch.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cleave/data/dataset.h"
#include "cleave/model/families/families.h"
#include "cleave/model/loss.h"

// The networks that exactness is tried with.
namespace cleave {

inline constexpr int kSteps = 20;
inline constexpr int kMicrobatches = 4;
inline constexpr std::int64_t kBatch = 10;  // does not divide into four

// A network to be cut, and data it can learn from.
struct Case {
  std::string name;
  std::function<Model()> make;
  std::function<Batch(std::int64_t samples)> draw;
  Loss loss = cross_entropy();
};

inline Batch images(std::int64_t samples) {
  return {torch::randn({samples, 1, 8, 8}), torch::randint(4, {samples})};
}

inline Batch tokens(std::int64_t samples) {
  const at::Tensor text = torch::randint(17, {samples, 13});
  return {text.slice(1, 0, 12), text.slice(1, 1, 13)};
}

inline Batch numbers(std::int64_t samples) {
  const at::Tensor inputs = torch::randn({samples, 6});
  return {inputs, torch::sin(inputs.slice(1, 0, 2))};
}

inline const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"mlp",
       [] {
         return mlp({.input = {1, 8, 8},
                     .outputs = 4,
                     .width = 24,
                     .depth = 3,
                     .dropout = 0.2,
                     .seed = 7});
       },
       images},
      {"convnet",
       [] {
         return convnet({.input = {1, 8, 8},
                         .outputs = 4,
                         .width = 4,
                         .dropout = 0.3,
                         .seed = 7});
       },
       images},
      {"resnet",
       [] {
         return resnet({.input = {1, 8, 8},
                        .outputs = 4,
                        .width = 4,
                        .depth = 2,
                        .seed = 7});
       },
       images},
      {"gpt",
       [] {
         return gpt({.width = 16,
                     .depth = 2,
                     .heads = 2,
                     .context = 12,
                     .vocabulary = 17,
                     .dropout = 0.1,
                     .seed = 7});
       },
       tokens},
      {"gpt_with_a_head_in_parts",
       [] {
         return gpt({.width = 16,
                     .depth = 1,
                     .heads = 2,
                     .context = 12,
                     .vocabulary = 48,  // parts of sixteen stay apart
                     .tied = false,
                     .head_parts = 3,
                     .seed = 7});
       },
       tokens},
      {"regression",
       [] {
         return mlp(
             {.input = {6}, .outputs = 2, .width = 16, .depth = 2, .seed = 7});
       },
       numbers,
       mean_squared_error()},
  };
  return kCases;
}

inline std::vector<Batch> draw_batches(const Case& network) {
  torch::manual_seed(3);
  std::vector<Batch> batches;
  for (int step = 0; step < kSteps; ++step) {
    // The last batch of every "epoch" of five is smaller; once it has fewer
    // samples than there are microbatches.
    const std::int64_t samples = step % 5 < 4 ? kBatch : step == 9 ? 3 : 7;
    batches.push_back(network.draw(samples));
  }
  return batches;
}

// Stage sizes: nearly equal, and a seeded random cut.
inline std::vector<std::vector<int>> cuts_of(int layers, int stages) {
  std::vector<std::vector<int>> cuts(1);
  for (int stage = 0; stage < stages; ++stage) {
    cuts[0].push_back(layers / stages + (stage < layers % stages));
  }
  std::mt19937 random(static_cast<unsigned>(layers * 10 + stages));
  while (stages > 1 && cuts.size() < 2) {
    std::vector<int> sizes(stages, 1);
    for (int layer = stages; layer < layers; ++layer) {
      ++sizes[random() % stages];
    }
    cuts.push_back(sizes);
  }
  return cuts;
}

}  // namespace cleave
