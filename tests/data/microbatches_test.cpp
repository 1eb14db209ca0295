#include "cleave/data/microbatches.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/error.h"

namespace cleave {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(Microbatches, sizes_differ_by_one_at_most_and_none_is_empty) {
  EXPECT_EQ(microbatch_sizes(8, 4), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(microbatch_sizes(10, 4), (Sizes{3, 3, 2, 2}));
  EXPECT_EQ(microbatch_sizes(3, 8), (Sizes{1, 1, 1}));
  EXPECT_EQ(microbatch_sizes(1, 1), (Sizes{1}));
  EXPECT_THROW(microbatch_sizes(0, 4), Error);
  EXPECT_THROW(microbatch_sizes(4, 0), Error);
}

TEST(Microbatches, parts_keep_the_order_and_share_the_memory) {
  const Batch batch{torch::arange(10), torch::arange(10) * 2};
  const std::vector<Batch> parts = split_batch(batch, 3);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(torch::equal(parts[1].inputs, torch::tensor({4, 5, 6})));
  EXPECT_TRUE(torch::equal(parts[2].targets, torch::tensor({14, 16, 18})));
  EXPECT_EQ(parts[0].inputs.data_ptr(), batch.inputs.data_ptr());
}

TEST(Microbatches, replicas_share_what_one_device_has_in_the_same_order) {
  for (const std::int64_t samples : {1, 3, 7, 10, 64}) {
    for (const int replicas : {1, 2, 3, 5}) {
      const Sizes all = microbatch_sizes(samples, replicas * 2);
      Sizes shared;
      std::int64_t next = 0;
      for (const ReplicaShare& share : shares_of(samples, replicas, 2)) {
        EXPECT_EQ(share.first, next);
        EXPECT_EQ(share.first_microbatch, std::ssize(shared));
        next += share.count;
        if (share.count > 0) {
          const Sizes own = microbatch_sizes(share.count, share.microbatches);
          shared.insert(shared.end(), own.begin(), own.end());
        }
      }
      EXPECT_EQ(next, samples);  // every sample once
      EXPECT_EQ(shared, all);
    }
  }
}

TEST(Microbatches, inputs_without_targets_are_refused) {
  EXPECT_THROW(split_batch({torch::arange(3), torch::arange(2)}, 2), Error);
}

}  // namespace
}  // namespace cleave
