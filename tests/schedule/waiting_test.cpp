#include "cleave/schedule/waiting.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cleave
