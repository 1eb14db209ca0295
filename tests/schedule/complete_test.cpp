#include "cleave/schedule/complete.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cleave/error.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/validate.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

// Completed, and shown to be able to run.
std::string completed(const Schedule& passes) {
  const Schedule whole = complete(passes);
  EXPECT_EQ(to_text(problems(whole), whole), "");
  return to_text(whole);
}

std::string completed(const std::string& text,
                      const Synchronisation& synchronisation = {},
                      const std::vector<StageTie>& ties = {}) {
  Schedule passes = parse_schedule(text);
  passes.graph = StageGraph(passes.stages(), ties);
  passes.synchronisation = synchronisation;
  return completed(passes);
}

TEST(Complete, receives_before_compute_and_sends_after_it) {
  EXPECT_EQ(completed(one_f_one_b({.ranks = 3, .microbatches = 2})),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 RB1 B1 U\n"
            "rank 1: RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RB1 B1 SB1 U\n"
            "rank 2: RF0 F0 B0 SB0 RF1 F1 B1 SB1 U\n");
}

TEST(Complete, one_stage_has_nobody_to_talk_to) {
  EXPECT_EQ(completed(gpipe({.ranks = 1, .microbatches = 3})),
            "rank 0: F0 F1 F2 B0 B1 B2 U\n");
}

TEST(Complete, forward_only_gets_no_messages_back_and_no_updates) {
  EXPECT_EQ(completed(forward_only(in_turn(3), 2)),
            "rank 0: F0 SF0 F1 SF1\n"
            "rank 1: RF0 F0 SF0 RF1 F1 SF1\n"
            "rank 2: RF0 F0 RF1 F1\n");
}

TEST(Complete, neighbouring_stages_on_one_rank_need_no_messages) {
  EXPECT_EQ(completed("rank 0: 0F0 3F0 3B0 0B0\n"
                      "rank 1: 1F0 2F0 2B0 1B0\n"),
            "rank 0: 0F0 0SF0 3RF0 3F0 3B0 3SB0 3U 0RB0 0B0 0U\n"
            "rank 1: 1RF0 1F0 2F0 2SF0 2RB0 2B0 2U 1B0 1SB0 1U\n");
}

TEST(Complete, a_rank_may_have_stages_that_are_no_neighbours) {
  EXPECT_EQ(completed("rank 0: 0F0 2F0 2B0 0B0\n"
                      "rank 1: 1F0 3F0 3B0 1B0\n"),
            "rank 0: 0F0 0SF0 2RF0 2F0 2SF0 2RB0 2B0 2SB0 2U 0RB0 0B0 0U\n"
            "rank 1: 1RF0 1F0 1SF0 3RF0 3F0 3B0 3SB0 3U 1RB0 1B0 1SB0 1U\n");
}

TEST(Complete, gradients_go_back_before_the_weights_are_done) {
  EXPECT_EQ(completed("rank 0: F0 B0 W0\n"
                      "rank 1: F0 B0 W0\n"),
            "rank 0: F0 SF0 RB0 B0 W0 U\n"
            "rank 1: RF0 F0 B0 SB0 W0 U\n");
}

TEST(Complete, a_stage_is_updated_once_its_last_gradient_is_there) {
  EXPECT_EQ(completed("rank 0: F0 F1 B0 W0 B1\n"),
            "rank 0: F0 F1 B0 W0 B1 U\n");
  EXPECT_EQ(completed("rank 0: F0 F1 B0 B1 W0 W1\n"),
            "rank 0: F0 F1 B0 B1 W0 W1 U\n");
  EXPECT_EQ(completed("rank 0: 0F0 1F0 1B0 0B0 1W0 0W0\n"),
            "rank 0: 0F0 1F0 1B0 0B0 1W0 1U 0W0 0U\n");
}

TEST(Complete, refuses_a_schedule_that_has_more_than_passes) {
  const Schedule passes = gpipe({.ranks = 2, .microbatches = 2});
  EXPECT_THROW(complete(complete(passes)), Error);
  Schedule updated = passes;
  updated.rows[0].push_back({Op::update, StageId{0}, 0, {}});
  EXPECT_THROW(complete(updated), Error);
}

const char* const kTwoOfTwo =
    "rank 0: F0 F1 B0 B1\n"
    "rank 1: F0 B0 F1 B1\n";

// The last bucket has the first layers, whose gradients come last.
TEST(Complete, all_buckets_but_the_last_are_summed_before_the_message_goes) {
  EXPECT_EQ(completed(kTwoOfTwo, {.buckets = {3, 3}}),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 RB1 B1 G0 G1 G2 U\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 G0 G1 SB1 G2 U\n");
  EXPECT_EQ(completed(kTwoOfTwo, {.buckets = {2, 1}}),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 RB1 B1 G0 G1 U\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 G0 U\n");
}

TEST(Complete, a_stage_without_buckets_is_updated_all_the_same) {
  EXPECT_EQ(completed(kTwoOfTwo, {.buckets = {0, 1}}),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 RB1 B1 U\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 G0 U\n");
}

TEST(Complete, buckets_are_summed_behind_the_last_weight_gradients) {
  EXPECT_EQ(completed("rank 0: F0 B0 W0\n"
                      "rank 1: F0 B0 W0\n",
                      {.buckets = {2, 2}}),
            "rank 0: F0 SF0 RB0 B0 W0 G0 G1 U\n"
            "rank 1: RF0 F0 B0 SB0 W0 G0 G1 U\n");
}

TEST(Complete, sums_run_beside_other_stages_and_updates_end_the_row) {
  EXPECT_EQ(completed("rank 0: 0F0 3F0 3B0 0B0\n"
                      "rank 1: 1F0 2F0 2B0 1B0\n",
                      {.buckets = {1, 1, 1, 2}}),
            "rank 0: 0F0 0SF0 3RF0 3F0 3B0 3G0 3SB0 3G1 0RB0 0B0 0G0 0U 3U\n"
            "rank 1: 1RF0 1F0 2F0 2SF0 2RB0 2B0 2G0 1B0 1SB0 1G0 1U 2U\n");
}

TEST(Complete, sharded_weights_are_gathered_behind_their_update) {
  EXPECT_EQ(
      completed("rank 0: 0F0 1F0 1B0 0B0\n",
                {.buckets = {1, 2}, .shard_states = ShardStates::optimizer}),
      "rank 0: 0F0 1F0 1B0 1G0 1G1 0B0 0G0 0U 0A 1U 1A\n");
}

TEST(Complete, sharded_gradients_are_summed_after_every_microbatch) {
  const Synchronisation sharded{.buckets = {3, 3},
                                .shard_states = ShardStates::gradients};
  EXPECT_EQ(completed(kTwoOfTwo, sharded),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 G0 RB1 B1 G1 U A\n"
            "rank 1: RF0 F0 B0 SB0 G0 RF1 F1 B1 SB1 G1 U A\n");
  EXPECT_EQ(completed("rank 0: F0 F1 B0 B1 W1\n"
                      "rank 1: F0 B0 F1 B1 W0 W1\n",
                      sharded),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 G0 RB1 B1 W1 G1 U A\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 W0 G0 W1 G1 U A\n");
}

// Nothing is sharded where nobody has the other sections.
TEST(Complete, one_replica_shards_nothing) {
  for (const ShardStates shard :
       {ShardStates::optimizer, ShardStates::gradients}) {
    EXPECT_EQ(completed(kTwoOfTwo, {.shard_states = shard}),
              completed(kTwoOfTwo));
  }
}

TEST(Complete, clipping_takes_the_norm_of_all_stages_before_any_update) {
  EXPECT_EQ(completed("rank 0: F0 B0\n"
                      "rank 1: F0 B0\n",
                      {.clips = true}),
            "rank 0: F0 SF0 RB0 B0 N SN RN U\n"
            "rank 1: RF0 F0 B0 SB0 N SN RN U\n");
  EXPECT_EQ(completed("rank 0: 0F0 3F0 3B0 0B0\n"
                      "rank 1: 1F0 2F0 2B0 1B0\n",
                      {.clips = true}),
            "rank 0: 0F0 0SF0 3RF0 3F0 3B0 3SB0 0RB0 0B0 "
            "0N 0SN 3N 3SN 0RN 0U 3U\n"
            "rank 1: 1RF0 1F0 2F0 2SF0 2RB0 2B0 1B0 1SB0 "
            "1N 1SN 2N 2SN 1RN 1U 2U\n");
}

TEST(Complete, one_rank_has_all_norms) {
  EXPECT_EQ(completed("rank 0: 0F0 1F0 1B0 0B0\n", {.clips = true}),
            "rank 0: 0F0 1F0 1B0 0B0 0N 1N 0U 1U\n");
}

// Mirrors that have all summed gradients have the same norm.
TEST(Complete, only_sharded_mirrors_sum_their_norms) {
  const std::string text =
      "rank 0: F0 B0\n"
      "rank 1: F0 B0\n";
  EXPECT_EQ(completed(text, {.buckets = {1, 1}, .clips = true}),
            "rank 0: F0 SF0 RB0 B0 G0 N SN RN U\n"
            "rank 1: RF0 F0 B0 SB0 G0 N SN RN U\n");
  EXPECT_EQ(completed(text,
                      {.buckets = {1, 1},
                       .shard_states = ShardStates::optimizer,
                       .clips = true}),
            "rank 0: F0 SF0 RB0 B0 G0 N M SN RN U A\n"
            "rank 1: RF0 F0 B0 SB0 G0 N M SN RN U A\n");
}

TEST(Complete, gradients_of_tied_weights_go_to_the_earlier_stage) {
  EXPECT_EQ(completed("rank 0: F0 F1 B0 B1\n"
                      "rank 1: F0 F1 B0 B1\n"
                      "rank 2: F0 B0 F1 B1\n",
                      {},
                      {{StageId{0}, StageId{2}}}),
            "rank 0: F0 SF0 F1 SF1 RB0 RT0 B0 RB1 RT1 B1 U SV\n"
            "rank 1: RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RB1 B1 SB1 U\n"
            "rank 2: RF0 F0 B0 SB0 ST0 RF1 F1 B1 SB1 ST1 U RV\n");
}

TEST(Complete, tied_stages_of_one_rank_hand_on_as_others_do) {
  EXPECT_EQ(
      completed("rank 0: 0F0 1F0 1B0 0B0\n", {}, {{StageId{0}, StageId{1}}}),
      "rank 0: 0F0 1F0 1B0 1ST0 1U 0RT0 0B0 0U 0SV 1RV\n");
}

TEST(Complete, a_stage_in_the_middle_of_ties_hands_on_what_it_was_given) {
  EXPECT_EQ(completed("rank 0: F0 B0\n"
                      "rank 1: F0 B0\n"
                      "rank 2: F0 B0\n",
                      {},
                      {{StageId{0}, StageId{1}}, {StageId{1}, StageId{2}}}),
            "rank 0: F0 SF0 RB0 RT0 B0 U SV\n"
            "rank 1: RF0 F0 SF0 RB0 RT0 B0 SB0 ST0 U RV SV\n"
            "rank 2: RF0 F0 B0 SB0 ST0 U RV\n");
}

TEST(Complete, sharded_weights_are_gathered_before_they_are_shared) {
  EXPECT_EQ(completed("rank 0: F0 B0\n"
                      "rank 1: F0 B0\n",
                      {.buckets = {2, 2},
                       .shard_states = ShardStates::optimizer,
                       .clips = true},
                      {{StageId{0}, StageId{1}}}),
            "rank 0: F0 SF0 RB0 RT0 B0 G0 G1 N M SN RN U A SV\n"
            "rank 1: RF0 F0 B0 G0 SB0 ST0 G1 N M SN RN U A RV\n");
}

// Calls `test` with schedules of every kind and all that their ranks may agree
// on, before they are completed.
template <typename Test>
void for_all_synchronised(Test test) {
  for (const ScheduleKind& kind : kSchedules) {
    for (const int ranks : {1, 2, 4}) {
      for (const ScheduleShape& shape : shapes_of(kind, ranks, 5)) {
        for_all_synchronisations(kind.make(shape), [&](const Schedule& passes) {
          SCOPED_TRACE(to_text(kind, shape) + "\n" + to_text(complete(passes)));
          test(passes);
        });
      }
    }
  }
}

TEST(Complete, all_that_ranks_may_agree_on_can_run) {
  for_all_synchronised([](const Schedule& passes) {
    const Schedule whole = complete(passes);
    EXPECT_EQ(to_text(problems(passes), passes), "");
    EXPECT_EQ(to_text(problems(whole), whole), "");
    EXPECT_EQ(passes_of(whole), passes);
  });
}

TEST(Complete, all_that_ranks_may_agree_on_can_be_written_and_read) {
  for_all_synchronised([](const Schedule& passes) {
    const Schedule whole = complete(passes);
    for (Rank rank; rank.value < std::ssize(whole.rows); ++rank.value) {
      const Row& row = whole.rows[rank.value];
      EXPECT_EQ(parse_row(to_text(row, rank), StageId{rank.value}), row);
    }
    EXPECT_EQ(parse_schedule(to_text(whole)).rows, whole.rows);
  });
}

// The drawings and the executor count on it.
TEST(Complete, every_message_has_both_ends_and_no_action_comes_twice) {
  for_all_synchronised([](const Schedule& passes) {
    const Schedule whole = complete(passes);
    std::set<Action> seen;
    std::map<Op, int> counts;
    for (const Row& row : whole.rows) {
      for (const Action& action : row) {
        EXPECT_TRUE(seen.insert(action).second) << to_text(action, true);
        ++counts[action.op];
      }
    }
    EXPECT_EQ(counts[Op::send_values], counts[Op::receive_values]);
    EXPECT_EQ(counts[Op::send_gradients], counts[Op::receive_gradients]);
    EXPECT_EQ(counts[Op::update], whole.stages());
  });
}

TEST(PassesOf, leaves_what_generators_write) {
  const Schedule passes = zb_v({2, 2, 4});
  EXPECT_EQ(passes_of(complete(passes)), passes);
  EXPECT_EQ(passes_of(passes), passes);
}

TEST(WithMicrobatches, drops_all_of_those_that_a_replica_does_not_have) {
  Schedule passes = one_f_one_b({.ranks = 2, .microbatches = 3});
  passes.synchronisation = {.buckets = {2, 2}, .clips = true};
  const Schedule fewer = with_microbatches(complete(passes), 2, 3);
  EXPECT_EQ(fewer.microbatches, 2);
  EXPECT_EQ(to_text(fewer),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 RB1 B1 G0 G1 N SN RN U\n"
            "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 G0 G1 N SN RN U\n");
  EXPECT_EQ(to_text(problems(fewer), fewer), "");
}

TEST(WithMicrobatches, drops_none_where_a_replica_has_as_many_as_any) {
  Schedule passes = zb_h1({.ranks = 2, .microbatches = 3});
  passes.synchronisation = {.buckets = {2, 2},
                            .shard_states = ShardStates::gradients};
  const Schedule whole = complete(passes);
  EXPECT_EQ(with_microbatches(whole, 3, 3), whole);
}

// It takes part in the sums of the others' microbatches with nothing.
TEST(WithMicrobatches, keeps_the_sums_of_microbatches_that_others_have) {
  Schedule passes = one_f_one_b({.ranks = 2, .microbatches = 4});
  passes.synchronisation = {.buckets = {2, 2},
                            .shard_states = ShardStates::gradients};
  EXPECT_EQ(to_text(with_microbatches(complete(passes), 2, 3)),
            "rank 0: F0 SF0 F1 SF1 RB0 B0 G0 RB1 B1 G1 G2 U A\n"
            "rank 1: RF0 F0 B0 SB0 G0 RF1 F1 B1 SB1 G1 G2 U A\n");
}

TEST(WithMicrobatches, updates_wait_for_sums_of_microbatches_of_others) {
  Schedule passes = one_f_one_b({.ranks = 1, .microbatches = 4});
  passes.synchronisation = {.buckets = {2},
                            .shard_states = ShardStates::gradients};
  for (const int own : {0, 1, 2}) {
    const Schedule fewer = with_microbatches(complete(passes), own, 3);
    const std::vector<Action> needs =
        Order(fewer).needs({Op::update, StageId{0}, 0, {}});
    EXPECT_EQ(to_text(needs), "G0 G1 G2") << own;
  }
}

TEST(EvaluationOf, goes_forward_through_the_stages_where_they_are) {
  const Schedule evaluation = evaluation_of(complete(zb_v({2, 2, 3})));
  EXPECT_EQ(to_text(evaluation),
            "rank 0: 0F0 0SF0 0F1 0SF1 0F2 0SF2 3RF0 3F0 3RF1 3F1 3RF2 3F2\n"
            "rank 1: 1RF0 1F0 2F0 2SF0 1RF1 1F1 2F1 2SF1 1RF2 1F2 2F2 2SF2\n");
  EXPECT_EQ(evaluation.microbatches, 3);
  EXPECT_EQ(to_text(problems(evaluation), evaluation), "");
}

TEST(EvaluationOf, a_rank_without_a_stage_keeps_its_row) {
  EXPECT_EQ(to_text(evaluation_of(parse_schedule("rank 0: F0 B0\n"
                                                 "rank 1:\n"))),
            "rank 0: F0\n"
            "rank 1:\n");
}

TEST(EvaluationOf, mirrors_take_the_buffers_first_and_agree_on_nothing_else) {
  Schedule passes = interleaved({2, 2, 2});
  passes.graph = StageGraph(4, {{StageId{0}, StageId{3}}});
  passes.synchronisation = {.buckets = {1, 1, 1, 1},
                            .shard_states = ShardStates::optimizer,
                            .clips = true};
  const Schedule evaluation = evaluation_of(complete(passes));
  EXPECT_EQ(to_text(evaluation),
            "rank 0: 0C 2C 0F0 0SF0 0F1 0SF1 2RF0 2F0 2SF0 2RF1 2F1 2SF1\n"
            "rank 1: 1C 3C 1RF0 1F0 1SF0 1RF1 1F1 1SF1 3RF0 3F0 3RF1 3F1\n");
  EXPECT_EQ(to_text(problems(evaluation), evaluation), "");
}

TEST(EvaluationOf, all_that_ranks_may_agree_on_can_run) {
  for_all_synchronised([](const Schedule& passes) {
    const Schedule evaluation = evaluation_of(complete(passes));
    EXPECT_EQ(to_text(problems(evaluation), evaluation), "");
    EXPECT_EQ(evaluation, evaluation_of(passes));
  });
}

}  // namespace
}  // namespace cleave
