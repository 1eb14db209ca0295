#include "cleave/evaluate/evaluate.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/checkpoint/safetensors.h"
#include "cleave/data/synthetic.h"
#include "cleave/error.h"
#include "cleave/model/families/families.h"
#include "cleave/train/trainer.h"
#include "tests/temporary_folder.h"
#include "tests/train/reference.h"

namespace cleave {
namespace {

Model small_convnet() {
  return convnet({.input = {1, 8, 8}, .outputs = 3, .width = 2});
}

TensorDataset noise() {
  torch::manual_seed(0);
  return {torch::randn({25, 1, 8, 8}), torch::randint(3, {25}), 3, "noise"};
}

TEST(Evaluate, a_merged_file_is_judged_as_the_pipeline_judged_it) {
  const Model model = small_convnet();
  const TensorDataset data = noise();
  Trainer trainer(model,
                  plan_of(model, {5, model.size() - 5}, "1f1b", 2, 10),
                  test_devices(2),
                  {});
  for (int step = 0; step < 5; ++step) {
    trainer.step(data.get(std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  }
  const Evaluation expected = trainer.evaluate(data);
  const TemporaryFolder folder;
  save_safetensors(trainer.merged(), folder / "m.safetensors");
  const Evaluation found =
      evaluate_file(model, folder / "m.safetensors", data, cross_entropy(), 10);
  EXPECT_NEAR(found.loss, expected.loss, 1e-6);
  EXPECT_EQ(found.accuracy, expected.accuracy);
  EXPECT_EQ(found.samples, 25);
}

TEST(Evaluate, a_perfect_answer_and_a_constant_one_are_told_apart) {
  Model model("copy");
  model.add<torch::nn::Identity>("same");
  const at::Tensor labels = torch::arange(30) % 3;
  const TensorDataset right(
      torch::one_hot(labels, 3).to(torch::kFloat) * 100, labels, 3, "right");
  const TensorDataset constant(
      torch::tensor({{1.0F, 0.0F, 0.0F}}).repeat({30, 1}), labels, 3, "same");
  const TemporaryFolder folder;
  const auto file = folder / "empty.safetensors";
  save_safetensors({}, file);
  EXPECT_EQ(evaluate_file(model, file, right, cross_entropy(), 7).accuracy,
            1.0);
  EXPECT_NEAR(
      evaluate_file(model, file, right, cross_entropy(), 7).loss, 0, 1e-6);
  EXPECT_NEAR(
      *evaluate_file(model, file, constant, cross_entropy(), 7).accuracy,
      1.0 / 3,
      1e-9);
}

TEST(Evaluate, a_file_of_another_model_is_refused) {
  const TemporaryFolder folder;
  const auto file = folder / "other.safetensors";
  save_safetensors({{"x", torch::ones({1})}}, file);
  EXPECT_THROW(
      evaluate_file(small_convnet(), file, noise(), cross_entropy(), 5), Error);
}

}  // namespace
}  // namespace cleave
