#include "cleave/schedule/memory.h"

#include <gtest/gtest.h>

#include "cleave/schedule/passes.h"

namespace cleave {
namespace {

TEST(PeakInFlight, counts_forwards_whose_backward_has_not_run) {
  EXPECT_EQ(peak_in_flight(parse_schedule("rank 0: F0 F1 B0 F2 B1 B2\n"
                                          "rank 1: F0 B0 F1 B1 F2 B2\n")),
            (std::vector<int>{2, 1}));
}

TEST(PeakInFlight, counts_every_stage_of_a_rank_for_itself) {
  EXPECT_EQ(peak_in_flight(parse_schedule("rank 0: 0F0 0F1 1F0 1B0 1F1 1B1 0B0 "
                                          "0B1\n")),
            (std::vector<int>{2, 1}));
}

TEST(PeakInFlight, does_not_count_what_is_kept_for_weights) {
  EXPECT_EQ(peak_in_flight(parse_schedule("rank 0: F0 B0 F1 B1 W0 W1\n")),
            (std::vector<int>{1}));
}

TEST(PeakBytes, counts_from_forward_to_backward_and_from_there_to_weight) {
  const std::vector<StageBytes> one{{Bytes{10}, Bytes{4}}};
  const auto peak = [&](const std::string& row) {
    return peak_bytes(parse_schedule("rank 0: " + row + "\n"), one).at(0);
  };
  EXPECT_EQ(peak("F0 B0"), Bytes{10});
  EXPECT_EQ(peak("F0 F1 B0 F2 B1 B2"), Bytes{20});
  EXPECT_EQ(peak("F0 B0 F1 B1 W0 W1"), Bytes{14});
  EXPECT_EQ(peak("F0 F1 B0 B1 F2 B2 W0 W1 W2"), Bytes{20});
  EXPECT_EQ(peak("F0 B0 W0 F1 B1 F2 B2 W1 W2"), Bytes{14});
}

TEST(PeakBytes,
     counts_what_actions_need_and_gradients_from_the_first_backward) {
  std::vector<StageBytes> one{{.kept = {10},
                               .kept_for_weights = {12},
                               .forward_need = {110},
                               .backward_need = {105},
                               .whole_need = {100},
                               .first_whole_need = {500},
                               .weight_need = {70},
                               .first_weight_need = {1060},
                               .gradients = {1000}}};
  const auto peak = [&](const std::string& row) {
    return peak_bytes(parse_schedule("rank 0: " + row + "\n"), one).at(0);
  };
  EXPECT_EQ(peak("F0 B0"), Bytes{1000});
  EXPECT_EQ(peak("F0 F1 B0 B1"), Bytes{10 + 100 + 1000});
  EXPECT_EQ(peak("F0 B0 W0"), Bytes{12 + 990 + 70});
  EXPECT_EQ(peak("F0 B0 F1 B1 W0 W1"), Bytes{24 + 990 + 70});
  EXPECT_EQ(peak("F0 B0 W0 F1 B1 W1"), Bytes{10 + 5 + 100 + 1000});
  StageBytes& bytes = one[0];
  bytes.gradients = {200};
  EXPECT_EQ(peak("F0 F1 B0 B1"), Bytes{20 + 400 + 100});
}

// A stage that leaves gradients of weights to Ws has them for a moment also
// where the W is part of the B.
TEST(PeakBytes, counts_backwards_without_w_among_others_as_both) {
  std::vector<StageBytes> one{{.kept = {10},
                               .kept_for_weights = {30},
                               .backward_need = {25},
                               .whole_need = {1},
                               .first_whole_need = {2},
                               .weight_need = {5},
                               .first_weight_need = {9},
                               .sums = {100}}};
  const auto peak = [&](const std::string& row) {
    return peak_bytes(parse_schedule("rank 0: " + row + "\n"), one).at(0);
  };
  EXPECT_EQ(peak("F0 B0 F1 B1"), Bytes{10 + 2 + 100});
  EXPECT_EQ(peak("F0 B0 F1 B1 W1"), Bytes{30 + 9 + 100});
  EXPECT_EQ(peak("F0 F1 B0 B1 W1"), Bytes{10 + 30 + 9 + 100});
  EXPECT_EQ(peak("F0 B0 W0 F1 F2 B1 F3 B2 W2 B3"), Bytes{10 + 30 + 5 + 100});
  one[0].returning = {3};
  one[0].shared = {4};
  EXPECT_EQ(peak("F0 F1 B0 B1 W1"), Bytes{10 + 30 + 3 + 4 + 9 + 100});
  one[0].backward_need = {200};
  one[0].sums = {};
  EXPECT_EQ(peak("F0 F1 B0 B1 W1"), Bytes{20 + 200});
}

TEST(PeakBytes, adds_up_the_stages_of_a_rank) {
  const Schedule v = with_messages(
      parse_schedule("rank 0: 0F0 0F1 3F0 3B0 3F1 3B1 3W0 3W1 0B0 0B1\n"
                     "rank 1: 1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1\n"));
  EXPECT_EQ(peak_bytes(v,
                       {{Bytes{1}, Bytes{0}},
                        {Bytes{100}, Bytes{0}},
                        {Bytes{1000}, Bytes{0}},
                        {Bytes{10}, Bytes{8}}}),
            (std::vector{Bytes{20}, Bytes{1100}}));
}

}  // namespace
}  // namespace cleave
