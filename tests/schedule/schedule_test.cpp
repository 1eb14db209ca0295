#include "cleave/schedule/schedule.h"

#include <gtest/gtest.h>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

TEST(ScheduleText, an_action_is_its_op_and_its_microbatch) {
  EXPECT_EQ(to_text(Action{Op::forward, StageId{2}, 0, {}}), "F0");
  EXPECT_EQ(to_text(Action{Op::backward, StageId{2}, 1, {}}), "B1");
  EXPECT_EQ(to_text(Action{Op::weight, StageId{2}, 9, {}}), "W9");
  EXPECT_EQ(to_text(Action{Op::receive_values, {}, 2, {}}), "RF2");
  EXPECT_EQ(to_text(Action{Op::send_values, {}, 3, {}}), "SF3");
  EXPECT_EQ(to_text(Action{Op::receive_gradients, {}, 4, {}}), "RB4");
  EXPECT_EQ(to_text(Action{Op::send_gradients, {}, 15, {}}), "SB15");
}

TEST(ScheduleText, an_action_has_its_bucket_or_no_number_at_all) {
  EXPECT_EQ(to_text(Action{Op::reduce, StageId{2}, 3, {}}), "G3");
  EXPECT_EQ(to_text(Action{Op::update, StageId{2}, 0, {}}), "U");
  EXPECT_EQ(to_text(Action{Op::update, StageId{2}, 0, {}}, true), "2U");
}

TEST(ScheduleText, the_stage_goes_in_front_where_it_is_asked_for) {
  EXPECT_EQ(to_text(Action{Op::forward, StageId{2}, 0, {}}, true), "2F0");
}

TEST(ScheduleText, a_row_names_its_stages_only_where_it_has_several) {
  const Row one{{Op::forward, StageId{3}}, {Op::backward, StageId{3}}};
  const Row two{{Op::forward, StageId{0}}, {Op::forward, StageId{3}}};
  EXPECT_EQ(to_text(one), "F0 B0");
  EXPECT_EQ(to_text(two), "0F0 3F0");
  EXPECT_EQ(to_text(Row{}), "");
}

TEST(ScheduleText, reading_a_row_gives_back_what_was_written) {
  const std::string several = "0RF0 0F0 0SF0 3RB0 3B0 3SB0 3W0 3G0 3U";
  EXPECT_EQ(to_text(parse_row(several)), several);
  const Row row = parse_row("F0 F1 B0 B1", StageId{2});
  EXPECT_EQ(parse_row(to_text(row), StageId{2}), row);
  EXPECT_EQ(row[2], (Action{Op::backward, StageId{2}}));
}

TEST(ScheduleText, reading_every_schedule_gives_back_what_was_written) {
  for (const ScheduleKind& kind : kSchedules) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int microbatches = 1; microbatches <= 12; ++microbatches) {
        for (const auto& shape : shapes_of(kind, ranks, microbatches)) {
          const Schedule passes = kind.make(shape);
          const Schedule whole = complete(passes);
          EXPECT_EQ(parse_schedule(to_text(passes)), passes);
          EXPECT_EQ(parse_schedule(to_text(whole)), whole);
        }
      }
    }
  }
}

TEST(ScheduleText, a_rank_whose_stage_has_another_number_names_it) {
  Schedule schedule{2, 1, {}, {}};
  schedule.rows = {parse_row("F0 B0", StageId{1}),
                   parse_row("F0 B0", StageId{0})};
  EXPECT_EQ(to_text(schedule), "rank 0: 1F0 1B0\nrank 1: 0F0 0B0\n");
  EXPECT_EQ(parse_schedule(to_text(schedule)), schedule);
}

TEST(ScheduleText, a_rank_that_does_nothing_keeps_its_line) {
  const std::string text = "rank 0: F0 B0\nrank 1:\n";
  EXPECT_EQ(to_text(parse_schedule(text)), text);
  EXPECT_EQ(parse_schedule(text).rows.size(), 2);
}

TEST(ScheduleText, every_other_spelling_is_refused_by_name) {
  for (const std::string word :
       {"X0",   "F",    "0",       "F-1",           "F01",          "00F0",
        "f0",   "F0,",  "F0B0",    "FR0",           "F 0",          "F+1",
        "-1F0", "F1.5", "F100000", "99999999999F0", "F99999999999", "U0",
        "G",    "N1"}) {
    try {
      parse_row("F0 " + word);
      ADD_FAILURE() << "read " << word;
    } catch (const Error& error) {
      EXPECT_NE(error.problem().find("is no action"), std::string::npos);
    }
  }
}

TEST(ScheduleText, the_error_quotes_the_word) {
  try {
    parse_row("F0 Z1 B0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "'Z1' is no action of a schedule");
    EXPECT_TRUE(error.fix().starts_with("Write one of F, B, W, G, N, U, RF, "));
  }
}

TEST(ScheduleText, a_line_that_is_no_row_is_refused) {
  for (const std::string text : {"F0 B0",
                                 "rank 1: F0 B0",
                                 "rank 0 F0 B0",
                                 "rank 0: F0\n\nrank 1: F0",
                                 "rank 0: F0\nrank 2: F0"}) {
    EXPECT_THROW(parse_schedule(text), Error) << text;
  }
}

}  // namespace
}  // namespace cleave
