#include "cleave/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cleave/data/splitmix64.h"
#include "cleave/error.h"

namespace cleave {
namespace {

using Order = std::vector<std::int64_t>;

TEST(SplitMix64, gives_the_published_numbers) {
  SplitMix64 draws(1234567);
  EXPECT_EQ(draws.next(), 6457827717110365317U);
  EXPECT_EQ(draws.next(), 3203168211198807973U);
  EXPECT_EQ(draws.next(), 9817491932198370423U);
}

TEST(SplitMix64, a_bound_is_kept_and_reached_evenly) {
  SplitMix64 draws(7);
  std::array<int, 5> seen{};
  for (int i = 0; i < 50'000; ++i) {
    ++seen.at(draws.below(5));
  }
  for (const int count : seen) {
    EXPECT_NEAR(count, 10'000, 500);  // five standard deviations
  }
  EXPECT_EQ(draws.below(1), 0U);
}

TEST(EpochOrder, without_shuffling_counts_up) {
  EXPECT_EQ(epoch_order(4, 1, 3, false), (Order{0, 1, 2, 3}));
  EXPECT_TRUE(epoch_order(0, 1, 0, true).empty());
}

TEST(EpochOrder, shuffling_visits_every_sample_once) {
  Order order = epoch_order(1000, 5, 2, true);
  EXPECT_NE(order, epoch_order(1000, 5, 2, false));
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, epoch_order(1000, 5, 2, false));
}

// Pinned: another order on another machine or in another release would make
// a resumed run differ from one that was never stopped.
TEST(EpochOrder, is_the_same_on_every_machine) {
  EXPECT_EQ(epoch_order(10, 1, 0, true), (Order{0, 8, 1, 4, 2, 3, 6, 9, 7, 5}));
  EXPECT_EQ(epoch_order(10, 1, 1, true), (Order{3, 4, 6, 9, 0, 5, 1, 2, 8, 7}));
}

TEST(EpochOrder, depends_on_seed_and_epoch) {
  const Order order = epoch_order(100, 1, 1, true);
  EXPECT_EQ(order, epoch_order(100, 1, 1, true));
  EXPECT_NE(order, epoch_order(100, 1, 2, true));
  EXPECT_NE(order, epoch_order(100, 2, 1, true));
}

TEST(EpochOrder, every_order_of_three_is_equally_likely) {
  std::array<int, 27> seen{};
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) {
    const Order order = epoch_order(3, 9, epoch, true);
    ++seen.at(order[0] * 9 + order[1] * 3 + order[2]);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen[20], 0);
  EXPECT_GT(seen[21], 850);  // 1000 expected, five standard deviations
  EXPECT_LT(seen[26], 1150);
}

TEST(EpochOrder, negative_numbers_are_refused) {
  EXPECT_THROW(epoch_order(-1, 0, 0, true), Error);
  EXPECT_THROW(epoch_order(1, 0, -1, true), Error);
}

TEST(BatchOrder, the_batches_together_are_the_epoch) {
  const OrderOptions options{.seed = 3};
  const BatchOrder batches(10, 4, 1, options);
  ASSERT_EQ(batches.steps(), 3);
  Order all;
  for (std::int64_t step = 0; step < batches.steps(); ++step) {
    const auto indices = batches.indices(step);
    EXPECT_EQ(indices.size(), step < 2 ? 4U : 2U);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  EXPECT_EQ(all, epoch_order(10, 3, 1, true));
}

TEST(BatchOrder, a_last_batch_that_is_not_full_can_be_dropped) {
  EXPECT_EQ(BatchOrder(10, 4, 0, {.drop_last = true}).steps(), 2);
  EXPECT_EQ(BatchOrder(8, 4, 0, {.drop_last = true}).steps(), 2);
  EXPECT_EQ(BatchOrder(8, 4, 0, {.drop_last = false}).steps(), 2);
}

TEST(BatchOrder, a_batch_may_be_larger_than_the_data) {
  const BatchOrder batches(3, 100, 0, {.shuffle = false});
  ASSERT_EQ(batches.steps(), 1);
  EXPECT_EQ(batches.indices(0).size(), 3U);
}

TEST(BatchOrder, an_epoch_without_a_batch_is_refused) {
  EXPECT_THROW(BatchOrder(0, 4, 0, {}), Error);
  EXPECT_THROW(BatchOrder(4, 0, 0, {}), Error);
  EXPECT_THROW(BatchOrder(4, -1, 0, {}), Error);
  EXPECT_THROW(BatchOrder(3, 4, 0, {.drop_last = true}), Error);
}

}  // namespace
}  // namespace cleave
