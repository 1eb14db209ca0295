#include "cleave/schedule/waiting.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

constexpr Seconds kOne{1};

std::vector<Bytes> waiting(const std::string& text,
                           const std::vector<StageCost>& stages) {
  const Schedule schedule = parse_schedule(text);
  const std::vector<Seconds> messages(stages.size() - 1);
  const std::vector<StageBytes> sizes(
      stages.size(), {.leaving = {10}, .returning = {100}, .shared = {1000}});
  return waiting_bytes(
      schedule, simulate(schedule, {stages, messages, messages}), sizes);
}

TEST(WaitingBytes, nothing_waits_where_all_is_taken_at_once) {
  const StageCost even{kOne, kOne, {}};
  EXPECT_EQ(waiting("rank 0: F0 B0\n"
                    "rank 1: F0 B0\n",
                    {even, even}),
            (std::vector<Bytes>{{0}, {1000}}));  // during the first one's B
}

// The second rank takes as long for one F as the first for three.
TEST(WaitingBytes, counts_what_a_slow_rank_has_not_taken) {
  EXPECT_EQ(waiting("rank 0: F0 F1 F2 F3 B0 B1 B2 B3\n"
                    "rank 1: F0 F1 F2 F3 B0 B1 B2 B3\n",
                    {{kOne, kOne, {}}, {3 * kOne, kOne, {}}})[0],
            Bytes{20});
}

// The second rank goes through all its backwards while the first is slow.
TEST(WaitingBytes, counts_gradients_of_the_stage_that_sends_them) {
  const std::vector<Bytes> found = waiting(
      "rank 0: F0 F1 F2 B0 B1 B2\n"
      "rank 1: F0 F1 F2 B0 B1 B2\n",
      {{kOne, 3 * kOne, {}}, {kOne, kOne, {}}});
  EXPECT_EQ(found[1], Bytes{200 + 3000});  // the last while B0 runs
}

TEST(WaitingBytes, stages_of_one_rank_wait_for_each_other_too) {
  const StageCost even{kOne, kOne, {}};
  EXPECT_EQ(waiting("rank 0: 0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1\n", {even, even}),
            (std::vector<Bytes>{{100 + 2000}}));
}

constexpr StageBytes kHanded{
    .leaving = {10}, .returning = {100}, .shared = {1000}};

std::vector<Bytes> most_in_order(const std::string& text,
                                 const StageBytes& bytes = kHanded) {
  const Schedule schedule = parse_schedule(text);
  return most_bytes_in_order(schedule,
                             std::vector<StageBytes>(schedule.stages, bytes));
}

// The last rank may be held up until the first can do no more.
TEST(MostBytesInOrder, count_all_that_can_be_made_before_it_must_be_taken) {
  EXPECT_EQ(most_in_order("rank 0: F0 F1 B0 F2 B1 B2\n"
                          "rank 1: F0 B0 F1 B1 F2 B2\n"),
            // F0 was taken where B0 can begin, and B0 where the second rank is
            // given F2.
            (std::vector<Bytes>{{20}, {2 * 1100}}));
}

TEST(MostBytesInOrder, stages_of_one_rank_take_from_it_in_its_order) {
  EXPECT_EQ(most_in_order("rank 0: 0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1\n"),
            (std::vector<Bytes>{{2 * 1100}}));
}

// Gradients wait when nothing is kept any more.
TEST(MostBytesInOrder, is_not_the_sum_of_what_is_most_at_other_times) {
  EXPECT_EQ(most_in_order("rank 0: F0 F1 F2 B0 B1 B2\n"
                          "rank 1: F0 F1 F2 B0 B1 B2\n",
                          {.kept = {1000}, .returning = {900}})[1],
            Bytes{3000});
}

TEST(MostBytesInOrder, is_never_less_than_any_timeline_has) {
  std::mt19937 random(7);
  const auto time = [&] {
    return Seconds{0.1 + static_cast<double>(random() % 100)};
  };
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule = make_schedule(
        kind.name, shapes_of(kind, /*ranks=*/3, /*microbatches=*/6).front());
    const std::vector<StageBytes> bytes(schedule.stages, kHanded);
    const std::vector<Bytes> most = most_bytes_in_order(schedule, bytes);
    for (int i = 0; i < 50; ++i) {
      ScheduleCosts costs;
      for (int stage = 0; stage < schedule.stages; ++stage) {
        costs.stages.push_back({time(), time(), time()});
      }
      costs.forward_message.resize(schedule.stages - 1);
      costs.backward_message = costs.forward_message;
      const std::vector<Bytes> now =
          waiting_bytes(schedule, simulate(schedule, costs), bytes);
      for (std::size_t rank = 0; rank < most.size(); ++rank) {
        EXPECT_LE(now[rank], most[rank]) << kind.name << ", rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace cleave
