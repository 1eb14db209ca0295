// A device holds its own stage and nothing else.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "reference.h"

namespace cleave {
namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kLayerBytes = 4 * (kWidth * kWidth + kWidth);

TEST(Memory, with_eight_stages_a_device_never_held_more_than_its_stage) {
  Model model("deep");
  for (int layer = 0; layer < 8; ++layer) {
    model.add<torch::nn::Linear>(
        "layer." + std::to_string(layer), kWidth, kWidth);
  }
  const Trainer trainer(model,
                        plan_of(model, std::vector<int>(8, 1), "1f1b", 8, 8),
                        test_devices(8),
                        {.optimizer = Sgd{.momentum = 0}});
  for (const Bytes peak : trainer.peak_memory()) {
    EXPECT_GE(peak.value, kLayerBytes);
    EXPECT_LT(peak.value, 1.1 * kLayerBytes);
  }
}

TEST(Memory, optimizer_states_count_on_their_own_device) {
  Model model("uneven");
  model.add<torch::nn::Linear>("one", kWidth, kWidth);
  model.add<torch::nn::Linear>("two", kWidth, kWidth);
  model.add<torch::nn::Linear>("three", kWidth, kWidth);
  const Trainer trainer(model,
                        plan_of(model, {1, 2}, "1f1b", 2, 8),
                        test_devices(2),
                        {.optimizer = AdamW{}});
  const std::vector<Bytes> peaks = trainer.peak_memory();
  EXPECT_NEAR(peaks[0].value, 3.0 * kLayerBytes, 0.05 * kLayerBytes);
  EXPECT_NEAR(peaks[1].value, 6.0 * kLayerBytes, 0.05 * kLayerBytes);
}

}  // namespace
}  // namespace cleave
