#include "cleave/schedule/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cleave/error.h"
#include "cleave/schedule/passes.h"
#include "cleave/schedule/validate.h"

namespace cleave {
namespace {

// Calls `test` with every schedule a user can ask for, in many sizes.
template <typename Test>
void for_every_schedule(Test test) {
  for (const ScheduleKind& kind : kSchedules) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int microbatches = 1; microbatches <= 12; ++microbatches) {
        SCOPED_TRACE(std::string(kind.name) + ", " + std::to_string(stages) +
                     " stages, " + std::to_string(microbatches) +
                     " microbatches");
        test(make_schedule(kind.name, stages, microbatches));
      }
    }
  }
}

TEST(Gpipe, does_all_forwards_then_all_backwards) {
  EXPECT_EQ(to_text(gpipe(1, 1)), "rank 0: F0 B0\n");
  EXPECT_EQ(to_text(gpipe(3, 2)),
            "rank 0: F0 F1 B0 B1\n"
            "rank 1: F0 F1 B0 B1\n"
            "rank 2: F0 F1 B0 B1\n");
  EXPECT_EQ(to_text(gpipe(2, 4)),
            "rank 0: F0 F1 F2 F3 B0 B1 B2 B3\n"
            "rank 1: F0 F1 F2 F3 B0 B1 B2 B3\n");
}

TEST(OneFOneB, fills_alternates_and_drains) {
  EXPECT_EQ(to_text(one_f_one_b(4, 6)),
            "rank 0: F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5\n"
            "rank 1: F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5\n"
            "rank 2: F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5\n"
            "rank 3: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5\n");
}

TEST(OneFOneB, the_last_stage_alternates_from_the_start) {
  EXPECT_EQ(to_text(one_f_one_b(4, 3).rows[3]), "F0 B0 F1 B1 F2 B2");
}

TEST(OneFOneB, one_stage_alternates) {
  EXPECT_EQ(to_text(one_f_one_b(1, 3)), "rank 0: F0 B0 F1 B1 F2 B2\n");
}

TEST(OneFOneB, with_fewer_microbatches_than_stages_only_late_stages_alternate) {
  EXPECT_EQ(to_text(one_f_one_b(4, 2)),
            "rank 0: F0 F1 B0 B1\n"
            "rank 1: F0 F1 B0 B1\n"
            "rank 2: F0 F1 B0 B1\n"
            "rank 3: F0 B0 F1 B1\n");
}

TEST(ForwardOnly, has_no_way_back) {
  EXPECT_EQ(to_text(forward_only(2, 3)),
            "rank 0: F0 F1 F2\n"
            "rank 1: F0 F1 F2\n");
  EXPECT_EQ(problems(forward_only(4, 8)), std::vector<Problem>());
  EXPECT_EQ(problems(with_messages(forward_only(4, 8))),
            std::vector<Problem>());
}

TEST(Schedules, can_all_run_with_and_without_messages) {
  for_every_schedule([](const Schedule& schedule) {
    const Schedule complete = with_messages(schedule);
    EXPECT_EQ(to_text(problems(schedule), schedule), "");
    EXPECT_EQ(to_text(problems(complete), complete), "");
  });
}

TEST(Schedules, all_run_each_stage_in_the_order_of_the_microbatches) {
  for_every_schedule([](const Schedule& schedule) {
    for (const Row& row : schedule.rows) {
      std::map<std::pair<StageId, Op>, int> next;
      for (const Action& action : row) {
        EXPECT_EQ(action.microbatch.value, (next[{action.stage, action.op}]++))
            << to_text(row);
      }
    }
  });
}

TEST(Schedules, gpipe_keeps_every_microbatch_on_every_stage) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      EXPECT_EQ(peak_in_flight(make_schedule("gpipe", stages, microbatches)),
                std::vector<int>(stages, microbatches));
    }
  }
}

TEST(Schedules, one_f_one_b_keeps_one_microbatch_per_stage_to_the_end) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      const std::vector<int> peak =
          peak_in_flight(make_schedule("1f1b", stages, microbatches));
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
    make_schedule("1F1B", 2, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "there is no schedule '1F1B'");
    EXPECT_EQ(error.fix(), "Did you mean 1f1b? Choose one of: gpipe, 1f1b.");
  }
}

TEST(MakeSchedule, a_name_near_none_gets_no_guess) {
  try {
    make_schedule("something", 2, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fix(), "Choose one of: gpipe, 1f1b.");
  }
}

TEST(MakeSchedule, needs_at_least_one_stage_and_one_microbatch) {
  EXPECT_THROW(make_schedule("gpipe", 0, 4), Error);
  EXPECT_THROW(make_schedule("1f1b", 4, 0), Error);
  EXPECT_THROW(make_schedule("1f1b", -1, 4), Error);
  EXPECT_THROW(forward_only(0, 1), Error);
  EXPECT_THROW(forward_only(1, 0), Error);
}

}  // namespace
}  // namespace cleave
