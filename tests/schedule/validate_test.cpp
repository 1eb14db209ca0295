#include "cleave/schedule/validate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/op.h"

namespace cleave {
namespace {

// The problems of a schedule, as a person sees them.
std::string shown(const Schedule& schedule) {
  return to_text(problems(schedule), schedule);
}

std::string shown(const std::string& text,
                  const Synchronisation& synchronisation = {},
                  const std::vector<StageTie>& ties = {}) {
  Schedule schedule = parse_schedule(text);
  schedule.graph = StageGraph(schedule.stages(), ties);
  schedule.synchronisation = synchronisation;
  return shown(schedule);
}

TEST(Validate, a_missing_forward_is_shown_where_the_next_one_stands) {
  EXPECT_EQ(shown("rank 0: F1 B0 F2 B1 B2\n"),
            "rank 0: F1 B0 F2 B1 B2\n"
            "        ^ F0 missing\n");
}

TEST(Validate, missing_actions_at_the_end_are_shown_behind_it) {
  EXPECT_EQ(shown("rank 0: F0 F1 F2 B0\n"
                  "rank 1: F0 F1 F2 B0 B1 B2\n"),
            "rank 0: F0 F1 F2 B0\n"
            "                    ^ B1 to B2 missing\n");
}

TEST(Validate, a_schedule_without_any_backward_is_complete) {
  EXPECT_EQ(shown("rank 0: F0 F1\n"
                  "rank 1: F0 F1\n"),
            "");
}

TEST(Validate, every_stage_is_updated_once) {
  EXPECT_EQ(shown("rank 0: 0F0 1F0 1B0 1U 0B0 0U\n"), "");
  EXPECT_EQ(shown("rank 0: 0F0 1F0 1B0 1U 0B0\n"),
            "rank 0: 0F0 1F0 1B0 1U 0B0\n"
            "                           ^ 0U missing\n");
  EXPECT_EQ(shown("rank 0: F0 B0 U U\n"),
            "rank 0: F0 B0 U U\n"
            "                ^ U a second time\n");
}

TEST(Validate, an_update_must_not_come_before_the_last_gradient) {
  EXPECT_EQ(shown("rank 0: F0 F1 B0 U B1\n"),
            "rank 0: F0 F1 B0 U B1\n"
            "                 ^ U before B1, which it needs\n");
  EXPECT_EQ(shown("rank 0: F0 F1 B0 B1 W0 U W1\n"),
            "rank 0: F0 F1 B0 B1 W0 U W1\n"
            "                       ^ U before W1, which it needs\n");
}

TEST(Validate, an_update_may_come_later_than_it_could) {
  EXPECT_EQ(shown("rank 0: 0F0 1F0 1B0 0B0 1U 0U\n"), "");
  EXPECT_EQ(shown("rank 0: 0F0 1F0 1B0 0B0 0U 1U\n"), "");
}

TEST(Validate, nothing_is_updated_where_nothing_goes_back) {
  EXPECT_EQ(shown("rank 0: F0 U\n"),
            "rank 0: F0 U\n"
            "           ^ U is not needed\n");
}

TEST(Validate, replicas_sum_every_bucket) {
  const Synchronisation two{.buckets = {2}};
  EXPECT_EQ(shown("rank 0: F0 B0 G0 G1 U\n", two), "");
  EXPECT_EQ(shown("rank 0: F0 B0 G0 U\n", two),
            "rank 0: F0 B0 G0 U\n"
            "                   ^ G1 missing\n");
  EXPECT_EQ(shown("rank 0: F0 B0 U\n", two),
            "rank 0: F0 B0 U\n"
            "                ^ G0 to G1 missing\n");
  EXPECT_EQ(shown("rank 0: F0 B0 G0 G1 G2 U\n", two),
            "rank 0: F0 B0 G0 G1 G2 U\n"
            "                    ^ G2 is not needed\n");
}

TEST(Validate, one_replica_sums_nothing) {
  EXPECT_EQ(shown("rank 0: F0 B0 G0 U\n"),
            "rank 0: F0 B0 G0 U\n"
            "              ^ G0 is not needed\n");
}

TEST(Validate, a_sum_comes_between_the_last_gradient_and_the_update) {
  EXPECT_EQ(shown("rank 0: F0 F1 B0 G0 B1 U\n", {.buckets = {1}}),
            "rank 0: F0 F1 B0 G0 B1 U\n"
            "                 ^ G0 before B1, which it needs\n");
  EXPECT_EQ(shown("rank 0: F0 B0 U G0\n", {.buckets = {1}}),
            "rank 0: F0 B0 U G0\n"
            "              ^ U before G0, which it needs\n");
}

TEST(Validate, sharded_gradients_are_summed_for_every_microbatch) {
  const Synchronisation sharded{.buckets = {3},
                                .shard_states = ShardStates::gradients};
  EXPECT_EQ(shown("rank 0: F0 F1 B0 G0 B1 G1 U A\n", sharded), "");
  EXPECT_EQ(shown("rank 0: F0 F1 B0 B1 W1 G0 G1 U A\n", sharded), "");
  EXPECT_EQ(shown("rank 0: F0 F1 B0 G1 B1 U A\n", sharded),
            "rank 0: F0 F1 B0 G1 B1 U A\n"
            "                 ^ G1 before B1, which it needs\n"
            "rank 0: F0 F1 B0 G1 B1 U A\n"
            "                 ^ G0 missing\n");
}

TEST(Validate, sharded_weights_are_gathered_behind_their_update) {
  const Synchronisation sharded{.buckets = {1},
                                .shard_states = ShardStates::optimizer};
  EXPECT_EQ(shown("rank 0: F0 B0 G0 U\n", sharded),
            "rank 0: F0 B0 G0 U\n"
            "                   ^ A missing\n");
  EXPECT_EQ(shown("rank 0: F0 B0 G0 A U\n", sharded),
            "rank 0: F0 B0 G0 A U\n"
            "                 ^ A before U, which it needs\n");
  EXPECT_EQ(shown("rank 0: F0 B0 G0 U A\n", {.buckets = {1}}),
            "rank 0: F0 B0 G0 U A\n"
            "                   ^ A is not needed\n");
}

TEST(Validate, clipped_updates_wait_for_all_norms) {
  const std::string first = "rank 0: F0 SF0 RB0 B0 N SN RN U\n";
  EXPECT_EQ(shown(first + "rank 1: RF0 F0 B0 SB0 N SN RN U\n", {.clips = true}),
            "");
  EXPECT_EQ(shown(first + "rank 1: RF0 F0 B0 SB0 N SN U RN\n", {.clips = true}),
            "rank 1: RF0 F0 B0 SB0 N SN U RN\n"
            "                           ^ U before RN, which it needs\n");
  EXPECT_EQ(shown(first + "rank 1: RF0 F0 B0 SB0 N RN SN U\n", {.clips = true}),
            "");
  EXPECT_EQ(
      shown("rank 0: F0 SF0 RB0 B0 N RN SN U\n"
            "rank 1: RF0 F0 B0 SB0 N RN SN U\n",
            {.clips = true}),
      "rank 0: F0 SF0 RB0 B0 N RN SN U\n"
      "                        ^ RN waits forever for SN of stage 1: rank 1 is "
      "itself stuck at RN\n"
      "rank 1: RF0 F0 B0 SB0 N RN SN U\n"
      "                        ^ RN waits forever for SN of stage 0: rank 0 is "
      "itself stuck at RN\n");
}

TEST(Validate, tied_weights_are_sent_when_they_are_new) {
  const std::vector<StageTie> ties{{StageId{0}, StageId{1}}};
  const std::string second = "rank 1: RF0 F0 B0 SB0 ST0 U RV\n";
  EXPECT_EQ(shown("rank 0: F0 SF0 RB0 RT0 B0 U SV\n" + second, {}, ties), "");
  EXPECT_EQ(shown("rank 0: F0 SF0 RB0 RT0 B0 SV U\n" + second, {}, ties),
            "rank 0: F0 SF0 RB0 RT0 B0 SV U\n"
            "                          ^ SV before U, which it needs\n");
  EXPECT_EQ(shown("rank 0: F0 SF0 RB0 B0 RT0 U SV\n" + second, {}, ties),
            "rank 0: F0 SF0 RB0 B0 RT0 U SV\n"
            "                   ^ B0 before RT0, which it needs\n");
  EXPECT_EQ(shown("rank 0: F0 SF0 RB0 B0 U\n"
                  "rank 1: RF0 F0 B0 SB0 U\n",
                  {},
                  ties),
            "rank 0: F0 SF0 RB0 B0 U\n"
            "                        ^ RT0 missing\n"
            "rank 0: F0 SF0 RB0 B0 U\n"
            "                        ^ SV missing\n"
            "rank 1: RF0 F0 B0 SB0 U\n"
            "                        ^ ST0 missing\n"
            "rank 1: RF0 F0 B0 SB0 U\n"
            "                        ^ RV missing\n");
}

// Its own weight gradients would be of weights that are not the step's.
TEST(Validate, tied_weights_come_behind_the_last_gradient) {
  EXPECT_EQ(shown("rank 0: F0 SF0 RB0 RT0 B0 U SV\n"
                  "rank 1: RF0 F0 B0 SB0 ST0 RV W0 U\n",
                  {},
                  {{StageId{0}, StageId{1}}}),
            "rank 1: RF0 F0 B0 SB0 ST0 RV W0 U\n"
            "                          ^ RV before W0, which it needs\n");
}

TEST(Validate, buckets_must_be_those_of_the_stages) {
  Schedule schedule = gpipe({.ranks = 2, .microbatches = 1});
  schedule.synchronisation.buckets = {1};
  EXPECT_EQ(shown(schedule),
            "rank 0: F0 B0\n"
            "        ^ there are buckets of 1 stages and not of 2\n");
  EXPECT_THROW(check(schedule), Error);
}

TEST(Validate, stages_that_do_not_exist_have_no_buckets) {
  for (const StageId stage : {StageId{-1}, StageId{2}}) {
    Schedule schedule = gpipe({.ranks = 2, .microbatches = 1});
    schedule.synchronisation.buckets = {1, 1};
    schedule.rows[1].push_back({Op::forward, stage, 0, {}});
    schedule.rows[1].push_back({Op::update, stage, 0, {}});
    EXPECT_NE(shown(schedule).find("there is no stage"), std::string::npos);
  }
}

TEST(Validate, an_action_of_another_step_has_no_place) {
  Schedule schedule = gpipe({.ranks = 1, .microbatches = 1});
  schedule.rows[0][1].step = Step{1};
  EXPECT_EQ(problems(schedule)[0].text, "an action of another step");
}

TEST(Validate, an_action_must_not_run_twice) {
  EXPECT_EQ(shown("rank 0: F0 B0 F0 F1 B1\n"),
            "rank 0: F0 B0 F0 F1 B1\n"
            "              ^ F0 a second time\n");
}

TEST(Validate, a_stage_is_on_one_rank) {
  EXPECT_EQ(shown("rank 0: F0 F1 B0\n"
                  "rank 1: 1F0 1F1 1B0 1B1 0B1\n"),
            "rank 0: F0 F1 B0\n"
            "                 ^ B1 missing\n"
            "rank 1: 1F0 1F1 1B0 1B1 0B1\n"
            "                        ^ stage 0 is on rank 0\n");
}

TEST(Validate, a_stage_is_on_some_rank) {
  EXPECT_EQ(shown("rank 0: F0 B0\n"
                  "rank 1: 2F0 2B0\n"),
            "rank 1: 2F0 2B0\n"
            "                ^ no rank has stage 1\n");
}

TEST(Validate, stages_and_microbatches_must_exist) {
  Schedule schedule = gpipe({.ranks = 2, .microbatches = 1});
  schedule.rows[0].push_back({Op::forward, StageId{0}, 7, {}});
  schedule.rows[1].push_back({Op::forward, StageId{2}, 0, {}});
  EXPECT_EQ(to_text(problems(schedule), schedule),
            "rank 0: F0 B0 F7\n"
            "              ^ there is no microbatch 7: there are 1\n"
            "rank 1: 1F0 1B0 2F0\n"
            "                ^ there is no stage 2: there are 2\n");
}

TEST(Validate, numbers_below_zero_do_not_exist) {
  Schedule schedule = gpipe({.ranks = 1, .microbatches = 1});
  schedule.rows[0].push_back({Op::forward, StageId{-1}, -1, {}});
  EXPECT_EQ(to_text(problems(schedule), schedule),
            "rank 0: 0F0 0B0 -1F-1\n"
            "                ^ there is no stage -1: there are 1\n"
            "rank 0: 0F0 0B0 -1F-1\n"
            "                ^ there is no microbatch -1: there are 1\n");
}

TEST(Validate, an_empty_schedule_has_problems) {
  EXPECT_EQ(to_text(problems(Schedule{}), Schedule{}),
            "rank 0:\n"
            "        ^ a schedule needs a rank, a stage and a microbatch\n");
  const Schedule nothing{0, 0, {}, {}};
  EXPECT_EQ(problems(nothing), problems(Schedule{}));
}

// Such a number would have to be counted up to.
TEST(Validate, counts_must_be_such_as_a_text_can_name) {
  const std::string text =
      "a schedule has at most 100000 stages, microbatches and buckets of a "
      "stage";
  const std::vector<Problem> expected{{Rank{0}, 0, text}};
  const Schedule one = parse_schedule("rank 0: F0 B0 U\n");
  Schedule many = one;
  many.microbatches = 2'000'000'000;
  EXPECT_EQ(problems(many), expected);
  many = one;
  many.graph = StageGraph(2'000'000'000);
  EXPECT_EQ(problems(many), expected);
  many = one;
  many.synchronisation.buckets = {2'000'000'000};
  EXPECT_EQ(problems(many), expected);
}

TEST(Validate, buffers_are_copied_only_where_nothing_goes_back) {
  EXPECT_EQ(shown("rank 0: C F0\n"), "");
  EXPECT_EQ(shown("rank 0: C F0 B0 U\n"),
            "rank 0: C F0 B0 U\n"
            "        ^ C is not needed\n");
}

TEST(Validate, a_backward_must_not_come_before_its_forward) {
  EXPECT_EQ(shown("rank 0: B0 F0\n"),
            "rank 0: B0 F0\n"
            "        ^ B0 before F0, which it needs\n");
}

TEST(Validate, a_backward_before_its_forward_is_named_beside_the_deadlock) {
  EXPECT_EQ(shown("rank 0: B0 F0\n"
                  "rank 1: F0 B0\n"),
            "rank 0: B0 F0\n"
            "        ^ B0 before F0, which it needs\n"
            "rank 0: B0 F0\n"
            "        ^ B0 waits forever for B0 of stage 1: rank 1 is itself "
            "stuck at F0\n"
            "rank 1: F0 B0\n"
            "        ^ F0 waits forever for F0 of stage 0: rank 0 is itself "
            "stuck at B0\n");
}

TEST(Validate, a_send_must_not_come_before_its_compute) {
  EXPECT_EQ(shown("rank 0: SF0 F0\n"
                  "rank 1: RF0 F0\n"),
            "rank 0: SF0 F0\n"
            "        ^ SF0 before F0, which it needs\n");
}

TEST(Validate, compute_must_not_come_before_its_receive) {
  EXPECT_EQ(shown("rank 0: F0 SF0\n"
                  "rank 1: F0 RF0\n"),
            "rank 1: F0 RF0\n"
            "        ^ F0 before RF0, which it needs\n");
}

TEST(Validate, stages_on_one_rank_must_come_in_order) {
  EXPECT_EQ(shown("rank 0: 1F0 0F0\n"),
            "rank 0: 1F0 0F0\n"
            "        ^ 1F0 before 0F0, which it needs\n");
}

TEST(Validate, weight_gradients_may_come_later_or_with_the_backward) {
  EXPECT_EQ(shown("rank 0: F0 F1 F2 B0 B1 W1 B2 W2\n"
                  "rank 1: F0 B0 F1 B1 W0 W1 F2 B2\n"),
            "");
}

TEST(Validate, weight_gradients_need_their_backward) {
  EXPECT_EQ(shown("rank 0: F0 W0 B0\n"),
            "rank 0: F0 W0 B0\n"
            "           ^ W0 before B0, which it needs\n");
  EXPECT_EQ(shown("rank 0: F0 W0\n"),
            "rank 0: F0 W0\n"
            "              ^ B0 missing\n");
}

TEST(Validate,
     weight_gradients_are_computed_once_and_on_the_rank_of_the_stage) {
  EXPECT_EQ(shown("rank 0: F0 B0 W0 W0\n"
                  "rank 1: 1F0 1B0 0W0\n"),
            "rank 0: F0 B0 W0 W0\n"
            "                 ^ W0 a second time\n"
            "rank 1: 1F0 1B0 0W0\n"
            "                ^ stage 0 is on rank 0\n");
}

TEST(Validate, a_stage_takes_the_microbatches_in_order) {
  EXPECT_EQ(shown("rank 0: F0 F2 F1 B1 B0 B2 W1 W0 W2\n"),
            "rank 0: F0 F2 F1 B1 B0 B2 W1 W0 W2\n"
            "              ^ F1 after F2: a stage takes the microbatches in "
            "order\n"
            "rank 0: F0 F2 F1 B1 B0 B2 W1 W0 W2\n"
            "                    ^ B0 after B1: a stage takes the microbatches "
            "in order\n"
            "rank 0: F0 F2 F1 B1 B0 B2 W1 W0 W2\n"
            "                             ^ W0 after W1: a stage takes the "
            "microbatches in order\n");
}

TEST(Validate, a_whole_backward_must_not_overtake_a_split_one) {
  EXPECT_EQ(shown("rank 0: F0 F1 B0 B1 W0\n"),
            "rank 0: F0 F1 B0 B1 W0\n"
            "                    ^ W0 after B1: a stage takes the microbatches "
            "in order\n");
}

TEST(Validate, an_order_that_is_wrong_is_one_problem) {
  EXPECT_EQ(problems(parse_schedule("rank 0: F0 F1 B1 B0\n")).size(), 1);
}

TEST(Validate, every_stage_of_a_rank_has_an_order_of_its_own) {
  EXPECT_EQ(shown("rank 0: 0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1\n"), "");
}

TEST(Validate, a_send_needs_a_receive) {
  EXPECT_EQ(shown("rank 0: F0 SF0 F1 SF1\n"
                  "rank 1: RF0 F0 F1\n"),
            "rank 1: RF0 F0 F1\n"
            "                  ^ RF1 missing\n");
}

TEST(Validate, a_receive_needs_a_send) {
  EXPECT_EQ(shown("rank 0: F0 SF0 RB0 B0 U\n"
                  "rank 1: RF0 F0 B0 U\n"),
            "rank 1: RF0 F0 B0 U\n"
            "                    ^ SB0 missing\n");
}

TEST(Validate, where_some_values_are_sent_all_must_be) {
  EXPECT_EQ(shown("rank 0: F0 SF0 F1\n"
                  "rank 1: RF0 F0 F1\n"),
            "rank 0: F0 SF0 F1\n"
            "                  ^ SF1 missing\n"
            "rank 1: RF0 F0 F1\n"
            "                  ^ RF1 missing\n");
}

TEST(Validate, where_some_values_are_sent_gradients_must_be_too) {
  EXPECT_EQ(shown("rank 0: F0 SF0 B0 U\n"
                  "rank 1: RF0 F0 B0 U\n"),
            "rank 0: F0 SF0 B0 U\n"
            "                    ^ RB0 missing\n"
            "rank 1: RF0 F0 B0 U\n"
            "                    ^ SB0 missing\n");
}

TEST(Validate, a_message_needs_another_end) {
  EXPECT_EQ(shown("rank 0: RF0 F0 SF0\n"
                  "rank 1: RF0 F0 SF0\n"),
            "rank 0: RF0 F0 SF0\n"
            "        ^ RF0 is not needed\n"
            "rank 1: RF0 F0 SF0\n"
            "               ^ SF0 is not needed\n");
}

TEST(Validate, a_message_to_the_same_rank_is_not_needed) {
  EXPECT_EQ(shown("rank 0: 0F0 0SF0 1RF0 1F0\n"),
            "rank 0: 0F0 0SF0 1RF0 1F0\n"
            "            ^ 0SF0 is not needed\n"
            "rank 0: 0F0 0SF0 1RF0 1F0\n"
            "                 ^ 1RF0 is not needed\n");
}

TEST(Validate, ranks_that_wait_for_each_other_are_found) {
  EXPECT_EQ(shown("rank 0: F0 SF0 RB0 B0 F1 SF1 RB1 B1 U\n"
                  "rank 1: RF0 F0 RF1 F1 B0 SB0 B1 SB1 U\n"),
            "rank 0: F0 SF0 RB0 B0 F1 SF1 RB1 B1 U\n"
            "               ^ RB0 waits forever for SB0 of stage 1: rank 1 is "
            "itself stuck at RF1\n"
            "rank 1: RF0 F0 RF1 F1 B0 SB0 B1 SB1 U\n"
            "               ^ RF1 waits forever for SF1 of stage 0: rank 0 is "
            "itself stuck at RB0\n");
}

TEST(Validate, a_deadlock_shows_before_the_schedule_is_completed) {
  EXPECT_EQ(shown("rank 0: F0 B0 F1 B1\n"
                  "rank 1: F0 F1 B0 B1\n"),
            "rank 0: F0 B0 F1 B1\n"
            "           ^ B0 waits forever for B0 of stage 1: rank 1 is itself "
            "stuck at F1\n"
            "rank 1: F0 F1 B0 B1\n"
            "           ^ F1 waits forever for F1 of stage 0: rank 0 is itself "
            "stuck at B0\n");
}

TEST(Validate, a_rank_behind_a_deadlock_is_reported_too) {
  const Schedule schedule = parse_schedule(
      "rank 0: F0 B0 F1 B1\n"
      "rank 1: F0 F1 B0 B1\n"
      "rank 2: F0 F1 B0 B1\n");
  const std::vector<Problem> found = problems(schedule);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[2].rank, Rank{2});
  EXPECT_EQ(found[2].position, 1);
}

// Without its F, a microbatch has no message that could leave.
TEST(Validate, a_missing_forward_leaves_its_message_without_need) {
  Schedule schedule = complete(one_f_one_b({.ranks = 4, .microbatches = 6}));
  schedule.rows[0].erase(schedule.rows[0].begin());
  const std::vector<Problem> found = problems(schedule);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].text, "SF0 is not needed");
  EXPECT_EQ(found[1].text, "F0 missing");
}

TEST(Validate, one_missing_message_is_one_problem) {
  const Schedule good = complete(one_f_one_b({.ranks = 4, .microbatches = 6}));
  for (std::size_t rank = 0; rank < good.rows.size(); ++rank) {
    for (std::size_t i = 0; i < good.rows[rank].size(); ++i) {
      if (!is_pass(good.rows[rank][i].op)) {
        Schedule bad = good;
        bad.rows[rank].erase(bad.rows[rank].begin() + i);
        EXPECT_EQ(problems(bad).size(), 1) << to_text(bad);
      }
    }
  }
}

TEST(Validate, every_problem_is_reported) {
  EXPECT_EQ(shown("rank 0: F1 B0 B1 B1\n"
                  "rank 1: B0 F0 F1\n"),
            "rank 0: F1 B0 B1 B1\n"
            "        ^ F0 missing\n"
            "rank 0: F1 B0 B1 B1\n"
            "                 ^ B1 a second time\n"
            "rank 1: B0 F0 F1\n"
            "        ^ B0 before F0, which it needs\n"
            "rank 1: B0 F0 F1\n"
            "                 ^ B1 missing\n");
}

TEST(Validate, a_long_row_is_shown_only_around_the_place) {
  Schedule schedule = gpipe({.ranks = 1, .microbatches = 20});
  schedule.rows[0].erase(schedule.rows[0].begin() + 15);
  EXPECT_EQ(to_text(problems(schedule), schedule),
            "rank 0: ... F7 F8 F9 F10 F11 F12 F13 F14 F16 F17 F18 F19 B0 B1 B2 "
            "B3 B4 ...\n"
            "                                         ^ F15 missing\n");
}

TEST(Check, says_nothing_about_a_schedule_that_can_run) {
  EXPECT_NO_THROW(
      check(complete(one_f_one_b({.ranks = 4, .microbatches = 8}))));
}

TEST(Check, throws_an_error_that_shows_the_place) {
  try {
    check(parse_schedule("rank 0: F1 B0 B1\n"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the schedule cannot run: it has 1 problem. Change what is "
                 "marked:\n"
                 "rank 0: F1 B0 B1\n"
                 "        ^ F0 missing\n");
  }
}

TEST(Check, shows_ten_problems_and_counts_the_rest) {
  Schedule schedule = gpipe({.ranks = 1, .microbatches = 12});
  std::ranges::reverse(schedule.rows[0]);
  try {
    check(schedule);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "the schedule cannot run: it has 34 problems");
    EXPECT_TRUE(error.fix().ends_with("and 24 more\n")) << error.fix();
  }
}

}  // namespace
}  // namespace cleave
