#include "cleave/optimizer/gradient_sums.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "cleave/comm/thread_world.h"

namespace cleave {
namespace {

constexpr int kParameters = 4;

// One replica's parameters, four numbers each, with gradients.
std::vector<at::Tensor> parameters_with(double gradient) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < kParameters; ++i) {
    parameters.push_back(torch::zeros({4}, at::kFloat));
    parameters.back().mutable_grad() =
        torch::full({4}, gradient + i, at::kFloat);
  }
  return parameters;
}

// Two replicas, driven by one thread: nothing in it may wait.
class Buckets : public testing::Test {
 protected:
  GradientSums sums_of(const std::unique_ptr<Transport>& rank,
                       const std::vector<at::Tensor>& parameters,
                       std::vector<Bucket> buckets) {
    return {{*rank, StageId{1}, 3},
            parameters,
            std::move(buckets),
            Sum::Wanted::own_section};
  }

  ThreadWorld world_{2, Seconds{1}};
  std::unique_ptr<Transport> ranks_[2] = {world_.connect({0}),
                                          world_.connect({1})};
  std::vector<at::Tensor> first_ = parameters_with(1);
  std::vector<at::Tensor> second_ = parameters_with(10);
};

TEST_F(Buckets, are_complete_with_their_last_gradient) {
  GradientSums sums = sums_of(ranks_[0], first_, {{3, 2}, {1, 0}});
  EXPECT_EQ(sums.note(first_[3]), std::nullopt);
  EXPECT_EQ(sums.note(first_[2]), 0);
  sums.begin(0);
  EXPECT_FALSE(first_[3].grad().defined());  // on its way
  EXPECT_FALSE(first_[2].grad().defined());
  EXPECT_TRUE(first_[1].grad().defined());
  EXPECT_EQ(sums.note(first_[0]), std::nullopt);
  sums.begin(1);
  EXPECT_FALSE(first_[0].grad().defined());
}

TEST_F(Buckets, give_the_same_sums_however_they_are_made) {
  const std::vector<std::vector<Bucket>> all{
      {{0, 1, 2, 3}}, {{3}, {2}, {1}, {0}}, {{1, 3}, {}, {0, 2}}};
  for (const std::vector<Bucket>& buckets : all) {
    first_ = parameters_with(1);
    second_ = parameters_with(10);
    GradientSums one = sums_of(ranks_[0], first_, buckets);
    GradientSums other = sums_of(ranks_[1], second_, buckets);
    for (int i = 0; i < std::ssize(buckets); ++i) {
      one.begin(i);
      other.begin(i);
      one.begin(i);  // begun already: nothing happens
    }
    const Message of_one = one.finish();
    const Message of_other = other.finish();
    for (int i = 0; i < kParameters; ++i) {
      const at::Tensor expected = torch::full({2}, 11.0 + 2 * i, at::kFloat);
      EXPECT_TRUE(torch::equal(of_one.at(i), expected)) << i;
      EXPECT_TRUE(torch::equal(of_other.at(i), expected)) << i;
    }
  }
}

TEST_F(Buckets, a_replica_without_a_gradient_adds_nothing) {
  first_[2].mutable_grad() = at::Tensor();
  second_[2].mutable_grad() = at::Tensor();
  first_[1].mutable_grad() = at::Tensor();
  GradientSums one = sums_of(ranks_[0], first_, {{3, 2, 1, 0}});
  GradientSums other = sums_of(ranks_[1], second_, {{3, 2, 1, 0}});
  one.begin(0);
  other.begin(0);
  const Message sums = one.finish();
  EXPECT_FALSE(sums.at(2).defined());
  EXPECT_TRUE(torch::equal(sums.at(1), torch::full({2}, 11.0, at::kFloat)));
}

}  // namespace
}  // namespace cleave
