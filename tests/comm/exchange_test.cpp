// Messages and collectives, over transport x ranks x type x size.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <deque>
#include <functional>

#include "cleave/comm/clocks.h"
#include "cleave/comm/collectives.h"
#include "cleave/comm/group.h"
#include "cleave/error.h"
#include "ranks.h"

namespace cleave {
namespace {

constexpr Tag kExchangeTag{Channel::values, 2, {3}};

// Different on every rank, and whole numbers: sums have one right answer.
at::Tensor numbers_of(Rank rank, std::int64_t count, at::ScalarType type) {
  return ((torch::arange(count) + 7 * rank.value) % 13 - 4).to(type);
}

at::Tensor sum_over(int ranks, std::int64_t count, at::ScalarType type) {
  at::Tensor sum = torch::zeros({count}, type);
  for (Rank rank; rank.value < ranks; ++rank.value) {
    sum += numbers_of(rank, count, type);
  }
  return sum;
}

Rank next_of(const Transport& ranks) {
  return {(ranks.rank().value + 1) % ranks.ranks()};
}

Rank previous_of(const Transport& ranks) {
  return {(ranks.rank().value + ranks.ranks() - 1) % ranks.ranks()};
}

// What one test exchanges: types and sizes in turn.
struct Load {
  at::ScalarType type;
  std::int64_t count;

  at::Tensor of(Rank rank) const { return numbers_of(rank, count, type); }
  at::Tensor sum(int ranks) const { return sum_over(ranks, count, type); }
};

class Exchange : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() > most_ranks()) {
      GTEST_SKIP() << "only " << most_ranks() << " ranks here";
    }
  }

  static void for_loads(
      const std::function<void(Transport&, const Load&)>& body) {
    on_ranks(GetParam(), [&](Transport& ranks) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
        for (const std::int64_t count : {1, 1000, 40'001}) {
          body(ranks, {type, count});
        }
      }
    });
  }
};

TEST_P(Exchange, a_message_keeps_types_shapes_and_numbers) {
  for_loads([](Transport& ranks, const Load& load) {
    const at::Tensor sent = load.of(ranks.rank()).view({1, -1, 1});
    ranks.send(next_of(ranks),
               kExchangeTag,
               {sent, at::Tensor(), torch::tensor(1.5).requires_grad_()});
    const Message received = ranks.receive(previous_of(ranks), kExchangeTag);
    ASSERT_EQ(received.size(), 3u);
    const at::Tensor expected = load.of(previous_of(ranks)).view({1, -1, 1});
    EXPECT_EQ(received[0].scalar_type(), load.type);
    EXPECT_EQ(received[0].sizes(), expected.sizes());
    EXPECT_TRUE(torch::equal(received[0], expected));
    EXPECT_FALSE(received[1].defined());
    EXPECT_EQ(received[2].item<double>(), 1.5);
    EXPECT_FALSE(received[0].requires_grad());
    EXPECT_TRUE(received[2].requires_grad());
  });
}

TEST_P(Exchange, many_messages_are_under_way_at_once) {
  constexpr int kMessages = 20;
  for_loads([](Transport& ranks, const Load& load) {
    for (int i = 0; i < kMessages; ++i) {
      // Two tags in turn; each keeps its order.
      ranks.send(next_of(ranks),
                 {Channel::values, i % 2, {}},
                 {load.of(ranks.rank()) + i, torch::tensor(i)});
    }
    const at::Tensor expected = load.of(previous_of(ranks));
    for (const int parity : {1, 0}) {
      for (int i = parity; i < kMessages; i += 2) {
        const Message message =
            ranks.receive(previous_of(ranks), {Channel::values, parity, {}});
        EXPECT_EQ(message.at(1).item<int>(), i);
        EXPECT_TRUE(torch::equal(message.at(0), expected + i));
      }
    }
  });
}

TEST_P(Exchange, a_sum_is_the_sum_of_all_on_every_rank) {
  for_loads([](Transport& ranks, const Load& load) {
    const at::Tensor values = load.of(ranks.rank()).view({-1, 1});
    all_reduce(ranks, values);
    EXPECT_TRUE(torch::equal(values.view({-1}), load.sum(ranks.ranks())));
  });
}

TEST_P(Exchange, a_scattered_sum_gives_every_rank_its_section) {
  for_loads([](Transport& ranks, const Load& load) {
    const Section section = section_of(load.count, ranks.rank(), ranks.ranks());
    EXPECT_TRUE(torch::equal(
        reduce_scatter(ranks, load.of(ranks.rank())),
        load.sum(ranks.ranks()).narrow(0, section.first, section.count)));
  });
}

TEST_P(Exchange, gathering_gives_everybody_everything) {
  for_loads([](Transport& ranks, const Load& load) {
    // Every rank another shape.
    const auto of = [&](Rank rank) {
      return numbers_of(rank, load.count + rank.value, load.type);
    };
    const Message all = all_gather(ranks, of(ranks.rank()));
    ASSERT_EQ(std::ssize(all), ranks.ranks());
    for (Rank rank; rank.value < ranks.ranks(); ++rank.value) {
      EXPECT_TRUE(torch::equal(all[rank.value], of(rank)));
    }
  });
}

TEST_P(Exchange, all_hear_every_root) {
  for_loads([](Transport& ranks, const Load& load) {
    for (Rank root; root.value < ranks.ranks(); ++root.value) {
      const Message received = broadcast(ranks, {load.of(ranks.rank())}, root);
      EXPECT_TRUE(torch::equal(received.at(0), load.of(root)));
    }
  });
}

TEST_P(Exchange, an_exchange_brings_every_part_to_its_rank) {
  for_loads([](Transport& ranks, const Load& load) {
    Message parts;
    for (int to = 0; to < ranks.ranks(); ++to) {
      parts.push_back(load.of(ranks.rank()) + 2 * to);
    }
    const Message received = all_to_all(ranks, parts);
    for (Rank from; from.value < ranks.ranks(); ++from.value) {
      EXPECT_TRUE(torch::equal(received.at(from.value),
                               load.of(from) + 2 * ranks.rank().value));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         Exchange,
                         testing::Range(1, 9),
                         testing::PrintToStringParamName());

// The order is that of the ranks, whoever comes first.
TEST(Sum, has_the_bits_of_adding_rank_after_rank) {
  const int count = std::min(5, most_ranks());
  on_ranks(count, [](Transport& ranks) {
    const auto of = [](Rank rank) {
      return (torch::arange(5000, at::kFloat) + 3 * rank.value).sin();
    };
    at::Tensor expected = of({0});
    for (int rank = 1; rank < ranks.ranks(); ++rank) {
      expected = expected + of({rank});
    }
    const at::Tensor values = of(ranks.rank());
    Sum sum(ranks, {values}, Sum::Wanted::all);
    sum.begin();
    sum.finish();
    EXPECT_TRUE(torch::equal(values, expected));
  });
}

TEST(Sum, of_what_only_some_ranks_have_counts_zero_for_the_others) {
  on_ranks(std::min(3, most_ranks()), [](Transport& ranks) {
    const bool first = ranks.rank() == Rank{0};
    Sum sum(ranks,
            {first ? torch::ones({2, 2}) : at::Tensor(),
             at::Tensor(),
             torch::full({3}, 2.0)},
            Sum::Wanted::all);
    sum.begin();
    const Message sums = sum.finish();
    EXPECT_TRUE(torch::equal(sums.at(0), torch::ones({4})));
    EXPECT_FALSE(sums.at(1).defined());
    EXPECT_EQ(sums.at(2)[2].item<int>(), 2 * ranks.ranks());
  });
}

// Somebody adds up long before others wait for it, and several sums at a time.
TEST(Sum, may_be_added_up_before_anybody_waits) {
  for (const Sum::Wanted wanted :
       {Sum::Wanted::all, Sum::Wanted::own_section}) {
    on_ranks(std::min(4, most_ranks()), [&](Transport& ranks) {
      constexpr int kSums = 3;
      std::deque<Sum> sums;
      for (int index = 0; index < kSums; ++index) {
        sums.emplace_back(
            ranks,
            Message{numbers_of(ranks.rank(), 1000 + index, at::kFloat)},
            wanted,
            index);
        sums.back().begin();
        sums.front().advance();
      }
      barrier(ranks);
      for (Sum& sum : sums) {
        sum.advance();
      }
      barrier(ranks);
      for (int index = kSums - 1; index >= 0; --index) {
        at::Tensor expected = sum_over(ranks.ranks(), 1000 + index, at::kFloat);
        if (wanted == Sum::Wanted::own_section) {
          const Section own =
              section_of(expected.numel(), ranks.rank(), ranks.ranks());
          expected = expected.narrow(0, own.first, own.count);
        }
        EXPECT_TRUE(torch::equal(sums[index].finish().at(0), expected));
      }
    });
  }
}

TEST(Sum, of_few_numbers_works_on_many_ranks) {
  on_ranks(most_ranks(), [](Transport& ranks) {
    const at::Tensor none = torch::empty({0});
    all_reduce(ranks, none);
    const at::Tensor two = torch::ones({2});
    all_reduce(ranks, two);
    EXPECT_EQ(two[1].item<int>(), ranks.ranks());
  });
}

TEST(Group, has_ranks_of_its_own) {
  if (most_ranks() < 4) {
    GTEST_SKIP();
  }
  on_ranks(4, [](Transport& all) {
    // {0, 2} and {1, 3}.
    const int parity = all.rank().value % 2;
    const std::unique_ptr<Transport> group =
        group_of(all, {{parity}, {parity + 2}});
    EXPECT_EQ(group->ranks(), 2);
    EXPECT_EQ(group->rank().value, all.rank().value / 2);
    const at::Tensor sum = torch::tensor({1.0 + all.rank().value});
    all_reduce(*group, sum);
    EXPECT_EQ(sum.item<int>(), parity == 0 ? 4 : 6);
  });
}

TEST(Clocks, of_ranks_are_compared) {
  on_ranks(std::min(4, most_ranks()), [](Transport& ranks) {
    const auto clock = [&] {
      return steady_now() + Seconds{-1000.0 * ranks.rank().value};
    };
    const std::vector<Seconds> leads = clock_leads(ranks, clock);
    ASSERT_EQ(std::ssize(leads), ranks.ranks());
    for (int rank = 0; rank < ranks.ranks(); ++rank) {
      EXPECT_NEAR(leads[rank].value, -1000.0 * rank, 1);
    }
    for (const Seconds lead : clock_leads(ranks)) {  // of one host
      EXPECT_EQ(lead, Seconds{});
    }
  });
}

TEST(Barrier, no_rank_leaves_before_the_last_one_came) {
  on_ranks(most_ranks(), [](Transport& ranks) {
    for (int round = 0; round < 50; ++round) {
      // A rank that leaves early would find a number of the last round.
      const Message all = all_gather(ranks, torch::tensor(round));
      barrier(ranks);
      for (const at::Tensor& other : all) {
        EXPECT_EQ(other.item<int>(), round);
      }
    }
  });
}

TEST(Collectives, need_a_part_for_every_rank) {
  on_ranks(1, [](Transport& ranks) {
    EXPECT_THROW(all_to_all(ranks, {}), Error);
    EXPECT_THROW(all_reduce(ranks, torch::ones({4, 4}).t().slice(0, 0, 2)),
                 Error);
  });
}

}  // namespace
}  // namespace cleave
