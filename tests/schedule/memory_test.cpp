#include "cleave/schedule/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cleave/schedule/complete.h"
#include "cleave/schedule/simulate.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

TEST(MostKept, counts_forwards_whose_backward_has_not_run) {
  EXPECT_EQ(most_kept(parse_schedule("rank 0: F0 F1 B0 F2 B1 B2\n"
                                     "rank 1: F0 B0 F1 B1 F2 B2\n")),
            (std::vector<int>{2, 1}));
}

TEST(MostKept, counts_every_stage_of_a_rank_for_itself) {
  EXPECT_EQ(most_kept(parse_schedule("rank 0: 0F0 0F1 1F0 1B0 1F1 1B1 0B0 "
                                     "0B1\n")),
            (std::vector<int>{2, 1}));
}

TEST(MostKept, counts_what_is_kept_for_weights) {
  EXPECT_EQ(most_kept(parse_schedule("rank 0: F0 B0 F1 B1 W0 W1\n")),
            (std::vector<int>{2}));
}

// The most that a rank needs which alone does this row.
Bytes row_peak(const std::string& row, const StageBytes& stage) {
  return row_peaks(parse_schedule("rank 0: " + row + "\n"), {stage}).at(0);
}

TEST(RowPeaks, count_from_forward_to_backward_and_from_there_to_weight) {
  const StageBytes one{.kept = {10}, .kept_for_weights = {4}};
  EXPECT_EQ(row_peak("F0 B0", one), Bytes{10});
  EXPECT_EQ(row_peak("F0 F1 B0 F2 B1 B2", one), Bytes{20});
  EXPECT_EQ(row_peak("F0 B0 F1 B1 W0 W1", one), Bytes{14});
  EXPECT_EQ(row_peak("F0 F1 B0 B1 F2 B2 W0 W1 W2", one), Bytes{20});
  EXPECT_EQ(row_peak("F0 B0 W0 F1 B1 F2 B2 W1 W2", one), Bytes{14});
}

TEST(RowPeaks, count_what_actions_need_above_what_is_kept) {
  StageBytes one{.kept = {10},
                 .kept_for_weights = {12},
                 .forward_need = {25},
                 .backward_need = {105},
                 .whole_need = {100},
                 .weight_need = {70}};
  EXPECT_EQ(row_peak("F0", one), Bytes{25});
  EXPECT_EQ(row_peak("F0 F1", one), Bytes{10 + 25});
  EXPECT_EQ(row_peak("F0 B0", one), Bytes{10 + 100});
  EXPECT_EQ(row_peak("F0 F1 B0 B1", one), Bytes{20 + 100});
  EXPECT_EQ(row_peak("F0 B0 W0", one), Bytes{10 + 105});
  one.weight_need = {200};
  EXPECT_EQ(row_peak("F0 B0 W0", one), Bytes{12 + 200});
  EXPECT_EQ(row_peak("F0 B0 F1 B1 W0 W1", one), Bytes{24 + 200});
  EXPECT_EQ(row_peak("F0 B0 W0 F1 B1 W1", one), Bytes{12 + 200});
  one.forward_need = {500};
  EXPECT_EQ(row_peak("F0 F1 B0 B1", one), Bytes{10 + 500});
}

// Wherever gradients of weights are made: in a B without W, or else in W.
TEST(RowPeaks, count_what_sums_need_while_gradients_are_made) {
  const StageBytes one{.kept = {10},
                       .kept_for_weights = {4},
                       .backward_need = {1},
                       .whole_need = {2},
                       .weight_need = {3},
                       .sums = {100}};
  EXPECT_EQ(row_peak("F0 B0", one), Bytes{10 + 2 + 100});
  EXPECT_EQ(row_peak("F0 B0 W0", one), Bytes{4 + 3 + 100});
  EXPECT_EQ(row_peak("F0 F1 B0 W0 B1 W1", one), Bytes{10 + 4 + 3 + 100});
}

// A stage that leaves gradients of weights to Ws has them for a moment also
// where the W is part of the B.
TEST(RowPeaks, count_backwards_without_w_among_others_as_both) {
  StageBytes one{.kept = {10},
                 .kept_for_weights = {30},
                 .backward_need = {25},
                 .whole_need = {1},
                 .weight_need = {5},
                 .sums = {100}};
  EXPECT_EQ(row_peak("F0 B0 F1 B1", one), Bytes{10 + 1 + 100});
  EXPECT_EQ(row_peak("F0 B0 F1 B1 W1", one), Bytes{30 + 5 + 100});
  EXPECT_EQ(row_peak("F0 F1 B0 B1 W1", one), Bytes{10 + 30 + 5 + 100});
  EXPECT_EQ(row_peak("F0 B0 W0 F1 F2 B1 F3 B2 W2 B3", one),
            Bytes{10 + 30 + 5 + 100});
  one.returning = {3};
  one.shared = {4};
  EXPECT_EQ(row_peak("F0 F1 B0 B1 W1", one), Bytes{10 + 30 + 3 + 4 + 5 + 100});
  one.backward_need = {200};
  one.sums = {};
  EXPECT_EQ(row_peak("F0 F1 B0 B1 W1", one), Bytes{20 + 200});
}

TEST(RowPeaks, add_up_the_stages_of_a_rank) {
  const Schedule v = complete(
      parse_schedule("rank 0: 0F0 0F1 3F0 3B0 3F1 3B1 3W0 3W1 0B0 0B1\n"
                     "rank 1: 1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1\n"));
  EXPECT_EQ(row_peaks(v,
                      {{.kept = {1}},
                       {.kept = {100}},
                       {.kept = {1000}},
                       {.kept = {10}, .kept_for_weights = {8}}}),
            (std::vector{Bytes{20}, Bytes{1100}}));
}

TEST(MemoryUses, are_those_of_every_action_of_every_row) {
  const StageBytes one{
      .kept = {10}, .forward_need = {25}, .whole_need = {100}, .sums = {7}};
  const std::vector<std::vector<MemoryUse>> uses =
      memory_uses(parse_schedule("rank 0: F0 B0 U\n"), {one});
  ASSERT_EQ(uses.size(), 1);
  ASSERT_EQ(uses[0].size(), 3);
  EXPECT_EQ(uses[0][0].needed, Bytes{25});
  EXPECT_EQ(uses[0][0].change, Bytes{10});
  EXPECT_EQ(uses[0][1].needed, Bytes{107});
  EXPECT_EQ(uses[0][1].change, Bytes{-10});
  EXPECT_EQ(uses[0][2].needed, Bytes{});
  EXPECT_EQ(uses[0][2].change, Bytes{});
}

constexpr StageBytes kHanded{
    .leaving = {10}, .returning = {100}, .shared = {1000}};

std::vector<Bytes> peaks(const std::string& text,
                         const StageBytes& bytes = kHanded) {
  const Schedule schedule = parse_schedule(text);
  return peak_bytes(schedule,
                    std::vector<StageBytes>(schedule.stages(), bytes));
}

// The last rank may be held up until the first can do no more.
TEST(PeakBytes, count_all_that_can_be_made_before_it_must_be_taken) {
  EXPECT_EQ(peaks("rank 0: F0 F1 B0 F2 B1 B2\n"
                  "rank 1: F0 B0 F1 B1 F2 B2\n"),
            // F0 was taken where B0 can begin, and B0 where the second rank is
            // given F2.
            (std::vector<Bytes>{{20}, {2 * 1100}}));
}

TEST(PeakBytes, stages_of_one_rank_take_from_it_in_its_order) {
  EXPECT_EQ(peaks("rank 0: 0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1\n"),
            (std::vector<Bytes>{{2 * 1100}}));
}

// Gradients wait when nothing is kept any more.
TEST(PeakBytes, are_not_the_sum_of_what_is_most_at_other_times) {
  EXPECT_EQ(peaks("rank 0: F0 F1 F2 B0 B1 B2\n"
                  "rank 1: F0 F1 F2 B0 B1 B2\n",
                  {.kept = {1000}, .returning = {900}})[1],
            Bytes{3000});
}

TEST(PeakBytes, without_messages_in_flight_are_those_of_the_rows) {
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule = kind.make(shapes_of(kind, 3, 6).front());
    const std::vector<StageBytes> bytes(schedule.stages(),
                                        {.kept = {10},
                                         .kept_for_weights = {4},
                                         .forward_need = {15},
                                         .backward_need = {9},
                                         .whole_need = {12},
                                         .weight_need = {5},
                                         .sums = {3}});
    EXPECT_EQ(peak_bytes(schedule, bytes), row_peaks(schedule, bytes));
  }
}

TEST(PeakBytes, are_the_same_when_the_schedule_is_complete) {
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule = kind.make(shapes_of(kind, 3, 6).front());
    const std::vector<StageBytes> bytes(schedule.stages(), kHanded);
    EXPECT_EQ(peak_bytes(complete(schedule), bytes),
              peak_bytes(schedule, bytes));
  }
}

// What a timeline holds, by its times alone: what each action keeps from its
// end, what it needs while it runs, and what it hands on until that is taken.
class Held {
 public:
  Held(const Schedule& schedule,
       const Timeline& timeline,
       const std::vector<StageBytes>& stages)
      : stages_(stages) {
    for (const Row& row : schedule.rows) {
      for (const Action& action : row) {
        splits_[action.stage] |= action.op == Op::weight;
      }
    }
    for (const std::vector<Span>& row : timeline.rows) {
      for (const Span& span : row) {
        spans_.emplace(span.action, span);
      }
    }
    for (const std::vector<Span>& row : timeline.rows) {
      changes_.emplace_back();
      std::ranges::for_each(row, [this](const Span& span) { add(span); });
    }
  }

  // By rank.
  std::vector<Bytes> most() {
    std::vector<Bytes> result;
    for (std::vector<Change>& changes : changes_) {
      std::ranges::sort(changes);
      Bytes now;
      Bytes& most = result.emplace_back();
      for (const auto& [time, by] : changes) {
        now += by;
        most = std::max(most, now);
      }
    }
    return result;
  }

 private:
  // What ends at a time no longer counts with what begins then.
  using Change = std::pair<Seconds, Bytes>;

  void hold(Seconds from, Seconds to, Bytes bytes) {
    changes_.back().emplace_back(from, bytes);
    changes_.back().emplace_back(to, Bytes{} - bytes);
  }

  void add(const Span& span) {
    const auto& [op, stage, index, step] = span.action;
    const StageBytes& bytes = stages_[stage.value];
    const auto of = [&](Op other, int distance) {
      return spans_.find({other, StageId{stage.value + distance}, index, step});
    };
    const bool split = splits_.at(stage);
    if (op == Op::forward) {
      hold(span.start, span.end, bytes.forward_need);
      hold(span.end, of(Op::backward, 0)->second.end, bytes.kept);
      if (const auto taker = of(Op::forward, 1); taker != spans_.end()) {
        hold(span.end, taker->second.start, bytes.leaving);
      }
    } else if (op == Op::backward) {
      hold(span.start,
           span.end,
           split ? bytes.backward_need : bytes.whole_need + bytes.sums);
      if (split) {
        const Seconds end = of(Op::weight, 0)->second.end;
        hold(span.end, end, bytes.kept_for_weights);
      }
      if (const auto taker = of(Op::backward, -1); taker != spans_.end()) {
        hold(span.end, taker->second.start, bytes.returning);
        hold(span.end, taker->second.end, bytes.shared);
      }
    } else if (op == Op::weight) {
      hold(span.start, span.end, bytes.weight_need + bytes.sums);
    }
  }

  const std::vector<StageBytes>& stages_;
  std::map<StageId, bool> splits_;
  std::map<Action, Span> spans_;
  std::vector<std::vector<Change>> changes_;  // by rank
};

class Timings {
 public:
  explicit Timings(unsigned seed) : random_(seed) {}

  ScheduleCosts next(int stages) {
    ScheduleCosts costs;
    for (int stage = 0; stage < stages; ++stage) {
      costs.stages.push_back(
          {time(), time(), time(), time(), time(), time(), time()});
    }
    return costs;
  }

  std::vector<StageBytes> next_bytes(int stages) {
    std::vector<StageBytes> result;
    for (int stage = 0; stage < stages; ++stage) {
      result.push_back({.kept = bytes(),
                        .kept_for_weights = bytes(),
                        .forward_need = bytes(),
                        .backward_need = bytes(),
                        .whole_need = bytes(),
                        .weight_need = bytes(),
                        .sums = bytes(),
                        .leaving = bytes(),
                        .returning = bytes(),
                        .shared = bytes()});
    }
    return result;
  }

 private:
  Seconds time() { return {0.1 + static_cast<double>(random_() % 100)}; }
  Bytes bytes() { return {static_cast<std::int64_t>(random_() % 100)}; }

  std::mt19937 random_;
};

TEST(PeakBytes, are_never_less_than_any_timeline_has) {
  Timings random(7);
  int equal = 0;
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule =
        kind.make(shapes_of(kind, /*ranks=*/3, /*microbatches=*/6).front());
    for (int i = 0; i < 100; ++i) {
      const std::vector<StageBytes> bytes =
          i < 50 ? std::vector<StageBytes>(schedule.stages(), kHanded)
                 : random.next_bytes(schedule.stages());
      const std::vector<Bytes> most = peak_bytes(schedule, bytes);
      const Timeline timeline =
          simulate(schedule, random.next(schedule.stages()));
      const std::vector<Bytes> held = Held(schedule, timeline, bytes).most();
      for (std::size_t rank = 0; rank < most.size(); ++rank) {
        EXPECT_LE(held[rank], most[rank]) << kind.name << ", rank " << rank;
        equal += held[rank] == most[rank] ? 1 : 0;
      }
    }
  }
  // A bound that no timeline reaches would say little.
  EXPECT_GT(equal, 100);
}

TEST(RowPeaks, are_what_timelines_have_without_messages_in_flight) {
  Timings random(11);
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule = kind.make(shapes_of(kind, 3, 6).front());
    for (int i = 0; i < 20; ++i) {
      std::vector<StageBytes> bytes = random.next_bytes(schedule.stages());
      for (StageBytes& stage : bytes) {
        stage.leaving = {};
        stage.returning = {};
        stage.shared = {};
      }
      const Timeline timeline =
          simulate(schedule, random.next(schedule.stages()));
      EXPECT_EQ(Held(schedule, timeline, bytes).most(),
                row_peaks(schedule, bytes))
          << kind.name;
    }
  }
}

TEST(HandedOn, goes_to_the_stages_that_take_it) {
  const StageGraph graph(3);
  const std::vector<StageBytes> stages(3, kHanded);
  const Action forward{Op::forward, StageId{1}, 4, {}};
  EXPECT_EQ(takers_of(forward, graph),
            (std::vector<Action>{{Op::forward, StageId{2}, 4, {}}}));
  EXPECT_EQ(handed_on_by(forward, stages).until_taken, Bytes{10});
  EXPECT_EQ(handed_on_by(forward, stages).until_done, Bytes{});
  const Action backward{Op::backward, StageId{1}, 4, {}};
  EXPECT_EQ(takers_of(backward, graph),
            (std::vector<Action>{{Op::backward, StageId{0}, 4, {}}}));
  EXPECT_EQ(handed_on_by(backward, stages).until_taken, Bytes{100});
  EXPECT_EQ(handed_on_by(backward, stages).until_done, Bytes{1000});
}

TEST(HandedOn, is_nothing_where_nobody_takes_it) {
  const StageGraph graph(3);
  const std::vector<StageBytes> stages(3, kHanded);
  EXPECT_TRUE(takers_of({Op::forward, StageId{2}, 0, {}}, graph).empty());
  EXPECT_TRUE(takers_of({Op::backward, StageId{0}, 0, {}}, graph).empty());
  for (const Op op : {Op::weight, Op::update, Op::send_values, Op::reduce}) {
    const Action action{op, StageId{1}, 0, {}};
    EXPECT_TRUE(takers_of(action, graph).empty());
    EXPECT_EQ(handed_on_by(action, stages).until_taken, Bytes{});
    EXPECT_EQ(handed_on_by(action, stages).until_done, Bytes{});
  }
}

}  // namespace
}  // namespace cleave
