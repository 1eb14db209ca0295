#include "cleave/data/dataset.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>
#include <vector>

#include "cleave/error.h"

namespace cleave {
namespace {

using Indices = std::vector<std::int64_t>;

TensorDataset squares() {
  const at::Tensor inputs = torch::arange(5, torch::kFloat).view({5, 1});
  return {inputs, inputs * inputs, 0, "squares"};
}

TEST(TensorDataset, gives_the_asked_samples_in_the_asked_order) {
  const TensorDataset data = squares();
  EXPECT_EQ(data.size(), 5);
  EXPECT_EQ(data.classes(), 0);
  EXPECT_EQ(data.description(), "squares");
  const Batch batch = data.get(Indices{3, 0, 3});
  EXPECT_TRUE(torch::equal(batch.inputs, torch::tensor({{3.F}, {0.F}, {3.F}})));
  EXPECT_TRUE(
      torch::equal(batch.targets, torch::tensor({{9.F}, {0.F}, {9.F}})));
}

TEST(TensorDataset, no_samples_are_an_empty_batch) {
  const Batch batch = squares().get({});
  EXPECT_EQ(batch.inputs.sizes(), (Indices{0, 1}));
}

TEST(TensorDataset, a_batch_is_the_callers_own) {
  const TensorDataset data = squares();
  data.get(Indices{1}).inputs.fill_(7);
  EXPECT_EQ(data.get(Indices{1}).inputs.item<float>(), 1);
}

TEST(TensorDataset, a_sample_that_is_not_there_is_refused) {
  EXPECT_THROW(squares().get(Indices{5}), Error);
  EXPECT_THROW(squares().get(Indices{0, -1}), Error);
}

TEST(TensorDataset, threads_may_read_at_the_same_time) {
  const TensorDataset data = squares();
  std::vector<float> sums(4);
  {
    std::vector<std::jthread> readers;
    readers.reserve(sums.size());
    for (float& sum : sums) {
      readers.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          sum += data.get(Indices{1, 2, 3}).targets.sum().item<float>();
        }
      });
    }
  }
  EXPECT_EQ(sums, (std::vector<float>{1400, 1400, 1400, 1400}));
}

TEST(TensorDataset, tensors_that_do_not_fit_are_refused) {
  const at::Tensor two = torch::zeros({2, 3});
  const at::Tensor labels = torch::tensor({0, 1}, torch::kInt64);
  EXPECT_NO_THROW(TensorDataset(two, labels, 2, ""));
  EXPECT_THROW(TensorDataset(torch::zeros({3, 3}), labels, 2, ""), Error);
  EXPECT_THROW(TensorDataset(two, {}, 2, ""), Error);
  EXPECT_THROW(TensorDataset(torch::zeros({}), labels, 2, ""), Error);
  EXPECT_THROW(TensorDataset(torch::zeros({0}), torch::zeros({0}), 0, ""),
               Error);
  EXPECT_THROW(TensorDataset(two, torch::zeros({2, 0}), 0, ""), Error);
}

TEST(TensorDataset, targets_that_are_no_classes_are_refused) {
  const at::Tensor two = torch::zeros({2, 3});
  const auto labels = [](std::int64_t a, std::int64_t b) {
    return torch::tensor({a, b}, torch::kInt64);
  };
  EXPECT_THROW(TensorDataset(two, labels(0, 2), 2, ""), Error);
  EXPECT_THROW(TensorDataset(two, labels(-1, 1), 2, ""), Error);
  EXPECT_THROW(TensorDataset(two, torch::zeros({2}), 2, ""), Error);
  EXPECT_THROW(TensorDataset(two, labels(0, 1), 0, ""), Error);
  EXPECT_THROW(TensorDataset(two, labels(0, 1), -1, ""), Error);
}

}  // namespace
}  // namespace cleave
