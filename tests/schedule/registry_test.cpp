#include "cleave/schedule/generators/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/memory.h"
#include "cleave/schedule/validate.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

// Calls `test` with every schedule a user can ask for, in many sizes.
template <typename Test>
void for_every_schedule(Test test) {
  for (const ScheduleKind& kind : kSchedules) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int microbatches = 1; microbatches <= 20; ++microbatches) {
        for (const auto& shape : shapes_of(kind, ranks, microbatches)) {
          SCOPED_TRACE(to_text(kind, shape));
          test(make_schedule(kind.name, shape), kind, shape);
        }
      }
    }
  }
}

TEST(Gpipe, does_all_forwards_then_all_backwards) {
  EXPECT_EQ(to_text(gpipe({.ranks = 1, .microbatches = 1})), "rank 0: F0 B0\n");
  EXPECT_EQ(to_text(gpipe({.ranks = 3, .microbatches = 2})),
            "rank 0: F0 F1 B0 B1\n"
            "rank 1: F0 F1 B0 B1\n"
            "rank 2: F0 F1 B0 B1\n");
  EXPECT_EQ(to_text(gpipe({.ranks = 2, .microbatches = 4})),
            "rank 0: F0 F1 F2 F3 B0 B1 B2 B3\n"
            "rank 1: F0 F1 F2 F3 B0 B1 B2 B3\n");
}

TEST(OneFOneB, fills_alternates_and_drains) {
  EXPECT_EQ(to_text(one_f_one_b({.ranks = 4, .microbatches = 6})),
            "rank 0: F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5\n"
            "rank 1: F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5\n"
            "rank 2: F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5\n"
            "rank 3: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5\n");
}

TEST(OneFOneB, the_last_stage_alternates_from_the_start) {
  EXPECT_EQ(to_text(one_f_one_b({.ranks = 4, .microbatches = 3}).rows[3]),
            "F0 B0 F1 B1 F2 B2");
}

TEST(OneFOneB, one_stage_alternates) {
  EXPECT_EQ(to_text(one_f_one_b({.ranks = 1, .microbatches = 3})),
            "rank 0: F0 B0 F1 B1 F2 B2\n");
}

TEST(OneFOneB, with_fewer_microbatches_than_stages_only_late_stages_alternate) {
  EXPECT_EQ(to_text(one_f_one_b({.ranks = 4, .microbatches = 2})),
            "rank 0: F0 F1 B0 B1\n"
            "rank 1: F0 F1 B0 B1\n"
            "rank 2: F0 F1 B0 B1\n"
            "rank 3: F0 B0 F1 B1\n");
}

TEST(Interleaved, goes_round_in_groups_of_as_many_as_there_are_ranks) {
  EXPECT_EQ(
      to_text(interleaved({2, 2, 4})),
      "rank 0: 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 "
      "0B3\n"
      "rank 1: 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 "
      "1B3\n");
}

TEST(Interleaved, with_one_stage_per_rank_is_1f1b) {
  EXPECT_EQ(interleaved({4, 1, 6}), one_f_one_b({4, 1, 6}));
}

TEST(Interleaved, a_last_group_may_be_small) {
  EXPECT_EQ(to_text(interleaved({2, 2, 3})),
            "rank 0: 0F0 0F1 2F0 2F1 0F2 2B0 2B1 2F2 0B0 0B1 2B2 0B2\n"
            "rank 1: 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1B1 3F2 3B2 1B2\n");
}

TEST(ZbH1, puts_off_more_weights_the_later_the_rank) {
  EXPECT_EQ(to_text(zb_h1({.ranks = 3, .microbatches = 4})),
            "rank 0: F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3\n"
            "rank 1: F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3\n"
            "rank 2: F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3\n");
}

TEST(ZbH2, has_twice_as_many_forwards_ahead) {
  EXPECT_EQ(to_text(zb_h2({.ranks = 3, .microbatches = 6})),
            "rank 0: F0 F1 F2 F3 F4 B0 W0 F5 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5\n"
            "rank 1: F0 F1 F2 B0 F3 B1 F4 B2 W0 F5 B3 W1 B4 W2 B5 W3 W4 W5\n"
            "rank 2: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 W0 F5 B5 W1 W2 W3 W4 W5\n");
}

TEST(ZbV, goes_down_and_up_again) {
  EXPECT_EQ(to_text(zb_v({2, 2, 4})),
            "rank 0: 0F0 0F1 0F2 3F0 3B0 3W0 3F1 3B1 3W1 0F3 0B0 0W0 3F2 3B2 "
            "3W2 0B1 0W1 3F3 3B3 3W3 0B2 0W2 0B3 0W3\n"
            "rank 1: 1F0 2F0 1F1 2F1 2B0 2W0 1F2 1B0 1W0 2F2 2B1 2W1 1F3 1B1 "
            "1W1 2F3 2B2 2W2 2B3 1B2 1B3 1W2 2W3 1W3\n");
}

TEST(Placement, is_in_turn_or_down_and_up) {
  const auto ranks = [](const char* name, const ScheduleShape& shape) {
    std::vector<int> values;
    for (const Rank rank : placement(name, shape)) {
      values.push_back(rank.value);
    }
    return values;
  };
  EXPECT_EQ(ranks("1f1b", {3, 1, 1}), (std::vector{0, 1, 2}));
  EXPECT_EQ(ranks("interleaved", {3, 2, 1}), (std::vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(ranks("zb-v", {3, 2, 1}), (std::vector{0, 1, 2, 2, 1, 0}));
}

TEST(ForwardOnly, a_rank_with_several_stages_does_the_latest_it_can) {
  EXPECT_EQ(to_text(forward_only(placement("interleaved", {2, 2, 1}), 3)),
            "rank 0: 0F0 0F1 2F0 2F1 0F2 2F2\n"
            "rank 1: 1F0 1F1 3F0 3F1 1F2 3F2\n");
  EXPECT_EQ(to_text(forward_only(placement("zb-v", {2, 2, 1}), 3)),
            "rank 0: 0F0 0F1 0F2 3F0 3F1 3F2\n"
            "rank 1: 1F0 2F0 1F1 2F1 1F2 2F2\n");
}

TEST(ForwardOnly, can_run_with_every_placement) {
  for_every_schedule([](const auto&, const auto& kind, const auto& shape) {
    const Schedule schedule =
        complete(forward_only(placement(kind.name, shape), shape.microbatches));
    EXPECT_EQ(to_text(problems(schedule), schedule), "");
  });
}

TEST(ForwardOnly, has_no_way_back) {
  EXPECT_EQ(to_text(forward_only(in_turn(2), 3)),
            "rank 0: F0 F1 F2\n"
            "rank 1: F0 F1 F2\n");
  EXPECT_EQ(problems(forward_only(in_turn(4), 8)), std::vector<Problem>());
  EXPECT_EQ(problems(complete(forward_only(in_turn(4), 8))),
            std::vector<Problem>());
}

TEST(Schedules, can_all_run_before_and_after_they_are_completed) {
  for_every_schedule([](const Schedule& schedule, const auto&, const auto&) {
    const Schedule whole = complete(schedule);
    EXPECT_EQ(to_text(problems(schedule), schedule), "");
    EXPECT_EQ(to_text(problems(whole), whole), "");
  });
}

TEST(Schedules, all_run_each_stage_in_the_order_of_the_microbatches) {
  for_every_schedule([](const Schedule& schedule, const auto&, const auto&) {
    for (const Row& row : schedule.rows) {
      std::map<std::pair<StageId, Op>, int> next;
      for (const Action& action : row) {
        EXPECT_EQ(action.index, (next[{action.stage, action.op}]++))
            << to_text(row);
      }
    }
  });
}

TEST(Schedules, all_have_their_stages_where_they_say) {
  for_every_schedule([](const Schedule& schedule,
                        const ScheduleKind& kind,
                        const ScheduleShape& shape) {
    const std::vector<Rank> ranks = placement(kind.name, shape);
    ASSERT_EQ(schedule.rows.size(), shape.ranks);
    ASSERT_EQ(ranks.size(), schedule.stages());
    for (Rank rank; rank.value < shape.ranks; ++rank.value) {
      for (const Action& action : schedule.rows[rank.value]) {
        EXPECT_EQ(ranks[action.stage.value], rank);
      }
    }
  });
}

// In activations: what a stage keeps from F to B and, as much, from B to W.
std::vector<int> peak_kept(const Schedule& schedule) {
  std::vector<int> peaks;
  for (const Bytes peak : row_peaks(
           schedule,
           std::vector<StageBytes>(schedule.stages(), {Bytes{1}, Bytes{1}}))) {
    peaks.push_back(static_cast<int>(peak.value));
  }
  return peaks;
}

TEST(Schedules, zero_bubble_schedules_keep_what_they_promise_on_every_rank) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p; m <= 20; ++m) {
      const auto peak = [&](const char* name, int stages_per_rank) {
        return peak_kept(make_schedule(name, {p, stages_per_rank, m}));
      };
      EXPECT_EQ(peak("zb-h1", 1), std::vector<int>(p, p));
      EXPECT_EQ(peak("zb-h2", 1), std::vector<int>(p, 2 * p - 1));
      EXPECT_EQ(peak("zb-v", 2), std::vector<int>(p, 2 * p));
    }
  }
}

TEST(Schedules, interleaved_keeps_less_than_one_more_group_than_1f1b) {
  for (int p = 1; p <= 8; ++p) {
    for (int v = 2; v <= 4; ++v) {
      const std::vector<int> peak =
          peak_kept(make_schedule("interleaved", {p, v, 4 * p}));
      for (int rank = 0; rank < p; ++rank) {
        EXPECT_EQ(peak[rank], (v - 1) * p + 2 * (p - 1 - rank) + 1);
      }
    }
  }
}

TEST(Schedules, gpipe_keeps_every_microbatch_on_every_stage) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      EXPECT_EQ(most_kept(make_schedule(
                    "gpipe", {.ranks = stages, .microbatches = microbatches})),
                std::vector<int>(stages, microbatches));
    }
  }
}

TEST(Schedules, one_f_one_b_keeps_one_microbatch_per_stage_to_the_end) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      const std::vector<int> peak = most_kept(make_schedule(
          "1f1b", {.ranks = stages, .microbatches = microbatches}));
      ASSERT_EQ(peak.size(), stages);
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(peak[stage], std::min(microbatches, stages - stage));
      }
    }
  }
}

TEST(Schedules, have_names_of_their_own_and_a_description) {
  for (const ScheduleKind& kind : kSchedules) {
    EXPECT_EQ(std::ranges::count(kSchedules, kind.name, &ScheduleKind::name),
              1);
    EXPECT_FALSE(kind.description.empty()) << kind.name;
  }
}

TEST(MakeSchedule, an_unknown_name_gets_the_nearest_and_all_known_ones) {
  try {
    make_schedule("1F1B", {.ranks = 2, .microbatches = 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "there is no schedule '1F1B'");
    EXPECT_EQ(
        error.fix(),
        "Did you mean 1f1b? Choose one of: auto, gpipe, 1f1b, interleaved, "
        "zb-h1, zb-h2, zb-v.");
  }
}

TEST(MakeSchedule, a_name_near_none_gets_no_guess) {
  try {
    make_schedule("something", {.ranks = 2, .microbatches = 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(error.fix().starts_with("Choose one of: auto, gpipe, 1f1b, "));
  }
}

TEST(MakeSchedule, says_how_many_stages_per_rank_it_needs) {
  try {
    make_schedule("zb-v", {.ranks = 2, .microbatches = 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "the schedule 'zb-v' cannot have 1 stages per rank");
    EXPECT_EQ(error.fix(), "Ask for 2, or choose another schedule.");
  }
  EXPECT_THROW(placement("1f1b", {2, 2, 4}), Error);
}

TEST(MakeSchedule, needs_at_least_one_stage_and_one_microbatch) {
  EXPECT_THROW(make_schedule("gpipe", {.ranks = 0, .microbatches = 4}), Error);
  EXPECT_THROW(make_schedule("1f1b", {.ranks = 4, .microbatches = 0}), Error);
  EXPECT_THROW(make_schedule("1f1b", {.ranks = -1, .microbatches = 4}), Error);
  EXPECT_THROW(make_schedule("interleaved", {2, 0, 4}), Error);
  EXPECT_THROW(make_schedule("interleaved", {-2, -1, 4}), Error);
  EXPECT_THROW(forward_only({}, 1), Error);
  EXPECT_THROW(forward_only(in_turn(1), 0), Error);
}

}  // namespace
}  // namespace cleave
