#include "cleave/schedule/passes.h"

#include <gtest/gtest.h>

#include "cleave/error.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/validate.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

TEST(WithMessages, receives_before_compute_and_sends_after_it) {
  EXPECT_EQ(
      to_text(with_messages(one_f_one_b({.ranks = 3, .microbatches = 2}))),
      "rank 0: F0 SF0 F1 SF1 RB0 B0 RB1 B1\n"
      "rank 1: RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RB1 B1 SB1\n"
      "rank 2: RF0 F0 B0 SB0 RF1 F1 B1 SB1\n");
}

TEST(WithMessages, one_stage_has_nobody_to_talk_to) {
  EXPECT_EQ(with_messages(gpipe({.ranks = 1, .microbatches = 3})),
            gpipe({.ranks = 1, .microbatches = 3}));
}

TEST(WithMessages, forward_only_gets_no_messages_back) {
  EXPECT_EQ(to_text(with_messages(forward_only(in_turn(3), 2))),
            "rank 0: F0 SF0 F1 SF1\n"
            "rank 1: RF0 F0 SF0 RF1 F1 SF1\n"
            "rank 2: RF0 F0 RF1 F1\n");
}

TEST(WithMessages, neighbouring_stages_on_one_rank_need_none) {
  const Schedule v = parse_schedule(
      "rank 0: 0F0 3F0 3B0 0B0\n"
      "rank 1: 1F0 2F0 2B0 1B0\n");
  const Schedule complete = with_messages(v);
  EXPECT_EQ(to_text(complete),
            "rank 0: 0F0 0SF0 3RF0 3F0 3B0 3SB0 0RB0 0B0\n"
            "rank 1: 1RF0 1F0 2F0 2SF0 2RB0 2B0 1B0 1SB0\n");
  EXPECT_EQ(to_text(problems(complete), complete), "");
}

TEST(WithMessages, a_rank_may_have_stages_that_are_no_neighbours) {
  const Schedule looped = parse_schedule(
      "rank 0: 0F0 2F0 2B0 0B0\n"
      "rank 1: 1F0 3F0 3B0 1B0\n");
  const Schedule complete = with_messages(looped);
  EXPECT_EQ(to_text(complete),
            "rank 0: 0F0 0SF0 2RF0 2F0 2SF0 2RB0 2B0 2SB0 0RB0 0B0\n"
            "rank 1: 1RF0 1F0 1SF0 3RF0 3F0 3B0 3SB0 1RB0 1B0 1SB0\n");
  EXPECT_EQ(to_text(problems(complete), complete), "");
}

TEST(WithMessages, gradients_go_back_before_the_weights_are_done) {
  const Schedule split = parse_schedule(
      "rank 0: F0 B0 W0\n"
      "rank 1: F0 B0 W0\n");
  const Schedule complete = with_messages(split);
  EXPECT_EQ(to_text(complete),
            "rank 0: F0 SF0 RB0 B0 W0\n"
            "rank 1: RF0 F0 B0 SB0 W0\n");
  EXPECT_EQ(to_text(problems(complete), complete), "");
}

TEST(WithMessages, refuses_a_schedule_that_has_messages) {
  EXPECT_THROW(
      with_messages(with_messages(gpipe({.ranks = 2, .microbatches = 2}))),
      Error);
}

}  // namespace
}  // namespace cleave
