#include "cleave/data/synthetic.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "cleave/data/order.h"
#include "cleave/error.h"

namespace cleave {
namespace {

using Shape = std::vector<std::int64_t>;

Batch all(const Dataset& data) {
  return data.get(epoch_order(data.size(), 0, 0, false));
}

SyntheticOptions small(SyntheticTask task) {
  return {.task = task,
          .train_samples = 1000,
          .test_samples = 400,
          .channels = 2,
          .height = 12,
          .width = 10};
}

// Trains on the train split and returns the share of the test split that is
// then named right.
double test_accuracy(const SyntheticOptions& options) {
  torch::set_num_threads(1);  // fastest for so small a network
  torch::manual_seed(1);
  const Batch train = all(*make_synthetic(options, Split::train));
  const Batch test = all(*make_synthetic(options, Split::test));
  torch::nn::Sequential net(torch::nn::Flatten(),
                            torch::nn::Linear(train.inputs[0].numel(), 64),
                            torch::nn::ReLU(),
                            torch::nn::Linear(64, options.classes));
  torch::optim::Adam optimizer(net->parameters(), 1e-2);
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(train.inputs),
                                         train.targets)
        .backward();
    optimizer.step();
  }
  const at::Tensor guesses = net->forward(test.inputs).argmax(1);
  return guesses.eq(test.targets).to(torch::kDouble).mean().item<double>();
}

TEST(Synthetic, every_task_gives_the_same_bits_for_the_same_seed) {
  for (const std::string_view name : synthetic_task_names()) {
    SyntheticOptions options = small(parse_synthetic_task(name));
    torch::set_num_threads(2);
    const Batch once = all(*make_synthetic(options, Split::train));
    torch::set_num_threads(1);  // neither this nor the global generator matters
    torch::manual_seed(99);
    const Batch again = all(*make_synthetic(options, Split::train));
    EXPECT_TRUE(torch::equal(once.inputs, again.inputs)) << name;
    EXPECT_TRUE(torch::equal(once.targets, again.targets)) << name;
    options.seed = 2;
    const Batch other = all(*make_synthetic(options, Split::train));
    EXPECT_FALSE(torch::equal(once.inputs, other.inputs)) << name;
  }
}

TEST(Synthetic, making_data_leaves_the_global_generator_alone) {
  torch::manual_seed(5);
  const at::Tensor expected = torch::rand({4});
  torch::manual_seed(5);
  for (const std::string_view name : synthetic_task_names()) {
    make_synthetic(small(parse_synthetic_task(name)), Split::train);
  }
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST(Synthetic, the_test_split_has_other_samples) {
  for (const std::string_view name : synthetic_task_names()) {
    SyntheticOptions options = small(parse_synthetic_task(name));
    options.test_samples = options.train_samples;
    const Batch train = all(*make_synthetic(options, Split::train));
    const Batch test = all(*make_synthetic(options, Split::test));
    EXPECT_FALSE(torch::equal(train.inputs, test.inputs)) << name;
  }
}

TEST(Synthetic, shapes_are_as_asked) {
  const auto shapes = [](SyntheticTask task) {
    const auto data = make_synthetic(small(task), Split::test);
    const Batch batch = all(*data);
    return std::pair(batch.inputs.sizes().vec(), batch.targets.sizes().vec());
  };
  EXPECT_EQ(shapes(SyntheticTask::classification),
            std::pair(Shape{400, 32}, Shape{400}));
  EXPECT_EQ(shapes(SyntheticTask::regression),
            std::pair(Shape{400, 32}, Shape{400, 1}));
  EXPECT_EQ(shapes(SyntheticTask::tokens),
            std::pair(Shape{400, 32}, Shape{400, 32}));
  EXPECT_EQ(shapes(SyntheticTask::images),
            std::pair(Shape{400, 2, 12, 10}, Shape{400}));
}

TEST(Synthetic, a_small_network_learns_to_classify_but_no_guess_does) {
  for (const SyntheticTask task :
       {SyntheticTask::classification, SyntheticTask::images}) {
    EXPECT_GE(test_accuracy(small(task)), 0.95);
    const auto test = make_synthetic(small(task), Split::test);
    const at::Tensor counts = torch::bincount(all(*test).targets, {}, 10);
    EXPECT_LT(counts.max().item<std::int64_t>(), 400 * 0.2);
  }
}

TEST(Synthetic, regression_targets_follow_the_inputs_up_to_the_noise) {
  SyntheticOptions options = small(SyntheticTask::regression);
  options.outputs = 3;
  options.train_samples = 20'000;
  const Batch noisy = all(*make_synthetic(options, Split::train));
  options.noise = 0;
  const Batch clean = all(*make_synthetic(options, Split::train));
  ASSERT_TRUE(torch::equal(noisy.inputs, clean.inputs));
  EXPECT_NEAR((noisy.targets - clean.targets).std().item<double>(), 0.2, 0.005);
  const double deviation = clean.targets.std().item<double>();
  EXPECT_GT(deviation, 0.5);
  EXPECT_LT(deviation, 2);
}

TEST(Synthetic, token_targets_are_the_next_inputs) {
  const Batch text =
      all(*make_synthetic(small(SyntheticTask::tokens), Split::train));
  EXPECT_TRUE(torch::equal(text.inputs.narrow(1, 1, 31),
                           text.targets.narrow(1, 0, 31)));
}

// Nats a token that a table of pairs, counted on the train split, needs for
// the test split: far below those of a guess, log(vocabulary).
TEST(Synthetic, the_next_token_can_be_learnt) {
  SyntheticOptions options = small(SyntheticTask::tokens);
  options.train_samples = 4000;
  const auto train = make_synthetic(options, Split::train);
  constexpr std::int64_t kSymbols = 64;
  EXPECT_EQ(train->classes(), kSymbols);
  const auto pairs = [](const Batch& text) {
    return (text.inputs * kSymbols + text.targets).flatten();
  };
  const at::Tensor counts =
      torch::bincount(pairs(all(*train)), {}, kSymbols * kSymbols)
          .view({kSymbols, kSymbols}) +
      0.1;
  const at::Tensor nats = -(counts / counts.sum(1, true)).log().flatten();
  const Batch test = all(*make_synthetic(options, Split::test));
  const double cost = nats.index_select(0, pairs(test)).mean().item<double>();
  EXPECT_LT(cost, 0.6 * std::log(kSymbols));
  EXPECT_GT(cost, 1);  // but it is no constant text
}

TEST(Synthetic, sizes_that_make_no_sense_are_refused) {
  EXPECT_THROW(make_synthetic({.train_samples = 0}, Split::train), Error);
  EXPECT_THROW(make_synthetic({.features = -1}, Split::train), Error);
  EXPECT_THROW(make_synthetic({.classes = 1}, Split::train), Error);
  EXPECT_THROW(make_synthetic({.noise = -0.1}, Split::train), Error);
  EXPECT_THROW(make_synthetic({.noise = std::nan("")}, Split::train), Error);
  EXPECT_THROW(make_synthetic({.task = SyntheticTask::tokens, .noise = 1.5},
                              Split::train),
               Error);
  EXPECT_THROW(
      make_synthetic(
          {.task = SyntheticTask::images, .height = 99'999, .width = 99'999},
          Split::train),
      Error);
}

TEST(Synthetic, an_unknown_task_is_answered_with_the_known_ones) {
  try {
    parse_synthetic_task("riddles");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "unknown synthetic task 'riddles'. Use one of: classification, "
              "regression, tokens, images.");
  }
}

}  // namespace
}  // namespace cleave
