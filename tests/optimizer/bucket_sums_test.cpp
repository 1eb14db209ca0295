#include "cleave/optimizer/bucket_sums.h"

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
  BucketSums sums_of(const std::unique_ptr<Transport>& rank,
                     const std::vector<at::Tensor>& parameters,
                     Bytes bucket) {
    return {
        {*rank, StageId{1}, 3, bucket}, parameters, Sum::Wanted::own_section};
  }

  ThreadWorld world_{2, Seconds{1}};
  std::unique_ptr<Transport> ranks_[2] = {world_.connect({0}),
                                          world_.connect({1})};
  std::vector<at::Tensor> first_ = parameters_with(1);
  std::vector<at::Tensor> second_ = parameters_with(10);
};

TEST_F(Buckets, start_when_their_last_gradient_is_there) {
  // Two parameters fill a bucket.
  BucketSums sums = sums_of(ranks_[0], first_, {20});
  sums.ready(first_[3]);
  EXPECT_TRUE(first_[3].grad().defined());
  sums.ready(first_[2]);
  EXPECT_FALSE(first_[3].grad().defined());  // on its way
  EXPECT_FALSE(first_[2].grad().defined());
  EXPECT_TRUE(first_[1].grad().defined());
  sums.ready(first_[0]);
  EXPECT_TRUE(first_[0].grad().defined());
  sums.begin();
  EXPECT_FALSE(first_[0].grad().defined());
}

TEST_F(Buckets, give_the_sums_whatever_order_the_gradients_come_in) {
  for (const std::int64_t bucket : {0, 1, 20, 40, 1000}) {
    first_ = parameters_with(1);
    second_ = parameters_with(10);
    BucketSums one = sums_of(ranks_[0], first_, {bucket});
    BucketSums other = sums_of(ranks_[1], second_, {bucket});
    for (const int i : {3, 2, 0, 1}) {
      one.ready(first_[i]);
    }
    one.begin();
    for (const int i : {0, 2}) {
      other.ready(second_[i]);
    }
    other.begin();
    const Message of_one = one.finish();
    const Message of_other = other.finish();
    for (int i = 0; i < kParameters; ++i) {
      const at::Tensor expected = torch::full({2}, 11.0 + 2 * i, at::kFloat);
      EXPECT_TRUE(torch::equal(of_one.at(i), expected)) << bucket << " " << i;
      EXPECT_TRUE(torch::equal(of_other.at(i), expected)) << bucket << " " << i;
    }
  }
}

TEST_F(Buckets, a_replica_without_a_gradient_adds_nothing) {
  first_[2].mutable_grad() = at::Tensor();
  second_[2].mutable_grad() = at::Tensor();
  first_[1].mutable_grad() = at::Tensor();
  BucketSums one = sums_of(ranks_[0], first_, {1});
  BucketSums other = sums_of(ranks_[1], second_, {1});
  one.begin();
  other.begin();
  const Message sums = one.finish();
  EXPECT_FALSE(sums.at(2).defined());
  EXPECT_TRUE(torch::equal(sums.at(1), torch::full({2}, 11.0, at::kFloat)));
}

}  // namespace
}  // namespace cleave
