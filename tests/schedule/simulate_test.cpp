#include "cleave/schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "tests/schedule/published.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

ScheduleCosts even_costs(int stages, StageCost cost, Seconds message = {}) {
  cost.values = cost.gradients = message;
  return {std::vector<StageCost>(stages, cost)};
}

std::string to_text(const std::vector<Span>& spans) {
  std::string text;
  for (const Span& span : spans) {
    std::ostringstream times;
    times << ' ' << span.start.value << '-' << span.end.value;
    text += (text.empty() ? "" : ", ") + to_text(span.action) + times.str();
  }
  return text;
}

TEST(Simulate, even_stages_take_exactly_the_time_of_the_closed_form) {
  const StageCost cost{Seconds{1}, Seconds{2}};
  for (const std::string name : {"gpipe", "1f1b"}) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 12; ++m) {
        const Timeline timeline = simulate(
            complete(make_schedule(name, {.ranks = p, .microbatches = m})),
            even_costs(p, cost));
        EXPECT_EQ(timeline.length, Seconds{3.0 * (m + p - 1)});
        EXPECT_EQ(timeline.busy, std::vector(p, Seconds{3.0 * m}));
        EXPECT_EQ(timeline.bubble(), (p - 1.0) / (m + p - 1.0))
            << name << ", " << p << " stages, " << m << " microbatches";
      }
    }
  }
}

// Of a schedule of the table, as the paper measures it.
double published_bubble(const PublishedRow& row,
                        const char* name,
                        int stages_per_rank) {
  const Schedule schedule =
      make_schedule(name, {row.ranks, stages_per_rank, row.microbatches});
  return published_bubble(
      simulate(complete(schedule), row.costs(stages_per_rank)), row.work());
}

TEST(Simulate, gives_the_published_bubbles_to_four_decimals) {
  for (const PublishedRow& row : kPublished) {
    SCOPED_TRACE(std::to_string(row.ranks) + " ranks, " +
                 std::to_string(row.microbatches) + " microbatches");
    EXPECT_NEAR(published_bubble(row, "1f1b", 1), row.one_f_one_b, 0.5e-4);
    EXPECT_NEAR(published_bubble(row, "zb-h1", 1), row.zb_h1, 0.5e-4);
    EXPECT_NEAR(published_bubble(row, "zb-h2", 1), row.zb_h2, 0.5e-4);
  }
}

TEST(Simulate, gives_nearly_the_published_bubbles_of_interleaved_1f1b) {
  for (const PublishedRow& row : kPublished) {
    EXPECT_NEAR(published_bubble(row, "interleaved", row.stages_per_rank),
                row.interleaved,
                0.4e-2)
        << row.ranks << " ranks, " << row.microbatches << " microbatches";
  }
}

TEST(Simulate, uneven_stages_with_messages_give_the_times_worked_out_by_hand) {
  ScheduleCosts costs{{{Seconds{1}, Seconds{2}}, {Seconds{2}, Seconds{3}}}};
  costs.stages[0].values = Seconds{0.5};
  costs.stages[1].gradients = Seconds{0.25};
  const Timeline timeline =
      simulate(complete(one_f_one_b({.ranks = 2, .microbatches = 2})), costs);
  EXPECT_EQ(to_text(timeline.rows[0]),
            "F0 0-1, F1 1-2, B0 6.75-8.75, B1 11.75-13.75");
  EXPECT_EQ(to_text(timeline.rows[1]),
            "F0 1.5-3.5, B0 3.5-6.5, F1 6.5-8.5, B1 8.5-11.5");
  EXPECT_EQ(timeline.length, Seconds{13.75});
  EXPECT_EQ(timeline.busy, (std::vector{Seconds{6}, Seconds{10}}));
  EXPECT_EQ(timeline.bubble(), (2 * 13.75 - 16) / (2 * 13.75));
}

TEST(Simulate, three_uneven_stages_give_the_times_worked_out_by_hand) {
  const ScheduleCosts costs{{{Seconds{1}, Seconds{2}},
                             {Seconds{3}, Seconds{1}},
                             {Seconds{1}, Seconds{4}}}};
  const Timeline timeline =
      simulate(complete(gpipe({.ranks = 3, .microbatches = 2})), costs);
  EXPECT_EQ(to_text(timeline.rows[0]), "F0 0-1, F1 1-2, B0 13-15, B1 17-19");
  EXPECT_EQ(to_text(timeline.rows[1]), "F0 1-4, F1 4-7, B0 12-13, B1 16-17");
  EXPECT_EQ(to_text(timeline.rows[2]), "F0 4-5, F1 7-8, B0 8-12, B1 12-16");
}

TEST(Simulate, a_backward_with_a_weight_action_leaves_that_time_to_it) {
  const ScheduleCosts costs =
      even_costs(2, {Seconds{1}, Seconds{2}, Seconds{4}}, Seconds{0.5});
  const Timeline timeline =
      simulate(complete(parse_schedule("rank 0: F0 F1 B0 B1 W1\n"
                                       "rank 1: F0 B0 W0 F1 B1\n")),
               costs);
  EXPECT_EQ(to_text(timeline.rows[0]),
            "F0 0-1, F1 1-2, B0 5-11, B1 16-18, W1 18-22");
  EXPECT_EQ(to_text(timeline.rows[1]),
            "F0 1.5-2.5, B0 2.5-4.5, W0 4.5-8.5, F1 8.5-9.5, B1 9.5-15.5");
  EXPECT_EQ(timeline.busy, (std::vector{Seconds{14}, Seconds{14}}));
}

TEST(Simulate, updates_lengthen_a_rank_and_keep_it_busy) {
  ScheduleCosts costs = even_costs(3, {Seconds{1}, Seconds{2}});
  costs.stages[0].update = Seconds{1};
  costs.stages[1].update = Seconds{10};
  costs.stages[2].update = Seconds{2};
  const Schedule schedule = parse_schedule(
      "rank 0: 0F0 0B0\n"
      "rank 1: 1F0 2F0 2B0 1B0\n");
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(timeline.length, Seconds{7 + 12});
  EXPECT_EQ(timeline.busy, (std::vector{Seconds{3 + 1}, Seconds{6 + 12}}));
  EXPECT_EQ(to_text(timeline.rows[0]), "F0 0-1, B0 9-11, U 11-12");
  // An update runs before the backward of another stage that comes behind it.
  EXPECT_EQ(to_text(timeline.rows[1]),
            "F0 1-2, F0 2-3, B0 3-5, U 5-7, B0 7-9, U 9-19");
}

const char* const kTwoStagesOfOneRank = "rank 0: 0F0 1F0 1B0 0B0\n";

Schedule mirrored(const std::string& text, std::vector<int> buckets) {
  Schedule schedule = parse_schedule(text);
  schedule.synchronisation.buckets = std::move(buckets);
  return schedule;
}

ScheduleCosts reduce_costs(int stages, double reduce, double update = 0) {
  return even_costs(stages,
                    {.forward = {1},
                     .backward = {2},
                     .update = {update},
                     .reduce = {reduce}});
}

TEST(Simulate, sums_run_beside_the_backwards_of_other_stages) {
  const Timeline timeline =
      simulate(mirrored(kTwoStagesOfOneRank, {1, 1}), reduce_costs(2, 1.5, 1));
  EXPECT_EQ(to_text(timeline.rows[0]),
            "F0 0-1, F0 1-2, B0 2-4, G0 4-5.5, B0 4-6, G0 6-7.5, U 7.5-8.5, "
            "U 8.5-9.5");
  EXPECT_EQ(timeline.length, Seconds{9.5});
  EXPECT_EQ(timeline.busy, (std::vector{Seconds{8}}));
}

TEST(Simulate, sums_of_a_rank_run_one_after_the_other) {
  const Timeline timeline =
      simulate(mirrored(kTwoStagesOfOneRank, {1, 2}), reduce_costs(2, 3, 1));
  EXPECT_EQ(to_text(timeline.rows[0]),
            "F0 0-1, F0 1-2, B0 2-4, G0 4-7, B0 4-6, G1 7-10, G0 10-13, "
            "U 13-14, U 14-15");
}

// The first stage has waited for its gradients all the while.
TEST(Simulate, sums_hold_up_no_message) {
  ScheduleCosts costs = reduce_costs(2, 10);
  costs.stages[1].gradients = Seconds{0.5};
  const Timeline timeline = simulate(mirrored("rank 0: F0 B0\n"
                                              "rank 1: F0 B0\n",
                                              {1, 2}),
                                     costs);
  EXPECT_EQ(to_text(timeline.rows[1]), "F0 1-2, B0 2-4, G0 4-14, G1 14-24");
  EXPECT_EQ(to_text(timeline.rows[0]), "F0 0-1, B0 4.5-6.5, G0 6.5-16.5");
  EXPECT_EQ(timeline.length, Seconds{24});  // where the update begins
}

TEST(Simulate, sums_after_every_microbatch_run_beside_the_next) {
  Schedule schedule = mirrored("rank 0: F0 B0 F1 B1\n", {1});
  schedule.synchronisation.shard_states = ShardStates::gradients;
  EXPECT_EQ(to_text(simulate(schedule, reduce_costs(1, 2, 1)).rows[0]),
            "F0 0-1, B0 1-3, G0 3-5, F1 3-4, B1 4-6, G1 6-8, U 8-9, A 9-11");
}

TEST(Simulate, clipping_makes_every_update_wait_for_the_last_norm) {
  Schedule schedule = parse_schedule(
      "rank 0: F0 B0\n"
      "rank 1: F0 B0\n");
  const ScheduleCosts costs = reduce_costs(2, 0, 1);
  EXPECT_EQ(to_text(simulate(schedule, costs).rows[1]),
            "F0 1-2, B0 2-4, U 4-5");
  schedule.synchronisation.clips = true;
  EXPECT_EQ(to_text(simulate(schedule, costs).rows[1]),
            "F0 1-2, B0 2-4, U 6-7");
}

TEST(Simulate, a_receive_holds_up_what_stands_behind_it) {
  const Timeline timeline =
      simulate(parse_schedule("rank 0: F0 SF0 RB0 F1 SF1 B0 RB1 B1 U\n"
                              "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 SB1 U\n"),
               even_costs(2, {Seconds{1}, Seconds{2}}));
  EXPECT_EQ(to_text(timeline.rows[0]), "F0 0-1, F1 4-5, B0 5-7, B1 8-10");
  EXPECT_EQ(to_text(timeline.rows[1]), "F0 1-2, B0 2-4, F1 5-6, B1 6-8");
}

// The next forward needs them.
TEST(Period, has_the_gathering_of_weights_in_it) {
  Schedule schedule = mirrored("rank 0: F0 B0\n", {1});
  EXPECT_EQ(period(schedule, reduce_costs(1, 4, 1)), Seconds{1 + 2 + 4 + 1});
  schedule.synchronisation.shard_states = ShardStates::optimizer;
  EXPECT_EQ(period(schedule, reduce_costs(1, 4, 1)),
            Seconds{1 + 2 + 4 + 1 + 4});
}

TEST(Period, is_the_step_of_1f1b_where_stages_are_even) {
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 9; ++m) {
      const Schedule schedule = one_f_one_b({.ranks = p, .microbatches = m});
      const ScheduleCosts costs =
          even_costs(p, {Seconds{1}, Seconds{2}}, Seconds{0.25});
      EXPECT_DOUBLE_EQ(period(schedule, costs).value,
                       simulate(schedule, costs).length.value);
    }
  }
}

TEST(Period, of_zb_h2_is_shorter_than_a_step_alone) {
  for (const PublishedRow& row : kPublished) {
    const Schedule schedule = zb_h2({row.ranks, 1, row.microbatches});
    const Seconds alone = simulate(schedule, row.costs(1)).length;
    const Seconds many = period(schedule, row.costs(1));
    EXPECT_LE(many.value, alone.value * (1 + 1e-12));
    // So the published bubble can be had: no rank waits for another's step.
    EXPECT_NEAR((many - row.work()) / many, row.zb_h2, 0.5e-4);
  }
  const ScheduleCosts even =
      even_costs(4, {Seconds{1}, Seconds{1}, Seconds{1}});
  const Schedule schedule = zb_h2({.ranks = 4, .microbatches = 8});
  EXPECT_DOUBLE_EQ(period(schedule, even).value, 24);
  EXPECT_DOUBLE_EQ(simulate(schedule, even).length.value, 27);
}

TEST(Period, is_shorter_where_ranks_can_begin_before_others_end) {
  // A rank that does nothing but forwards is never waited for.
  const ScheduleCosts costs = even_costs(4, {Seconds{2}, Seconds{0}});
  EXPECT_EQ(period(forward_only(in_turn(4), 5), costs), Seconds{10});
  EXPECT_EQ(simulate(forward_only(in_turn(4), 5), costs).length, Seconds{16});
}

// Plays steps that follow each other, by rules of its own.
class ManySteps {
 public:
  ManySteps(const Schedule& compute, const ScheduleCosts& costs)
      : compute_(compute), costs_(costs), now_(compute.rows.size(), 0) {}

  // Every rank does its row once more; returns when the first one ends.
  double step() {
    ends_.clear();
    std::vector<std::size_t> next(now_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < now_.size(); ++rank) {
        const Row& row = compute_.rows[rank];
        if (next[rank] < row.size() && act(row[next[rank]], rank)) {
          moved = true;
          ++next[rank];
        }
      }
    }
    return now_[0];
  }

 private:
  std::size_t rank_of(StageId stage) const {
    std::size_t rank = 0;
    const Action first{Op::forward, stage, 0, {}};
    while (std::ranges::count(compute_.rows[rank], first) == 0) {
      ++rank;
    }
    return rank;
  }

  // False: it has to wait for something that has not run.
  bool act(const Action& action, std::size_t rank) {
    const auto [op, stage, index, step] = action;
    const bool forward = op == Op::forward;
    const int from = stage.value + (forward ? -1 : 1);
    if (op != Op::weight && from >= 0 && from < compute_.stages()) {
      const Action need{op, StageId{from}, index, step};
      if (!ends_.contains(need)) {
        return false;
      }
      const StageCost& sender = costs_.stages[from];
      const Seconds message = forward ? sender.values : sender.gradients;
      const bool near = rank_of(need.stage) == rank;
      now_[rank] =
          std::max(now_[rank], ends_[need] + (near ? 0 : message.value));
    }
    now_[rank] += duration(action, rank).value;
    ends_[action] = now_[rank];
    if (op != Op::forward && is_last_of_its_stage(action, rank)) {
      now_[rank] += costs_.stages[stage.value].update.value;
    }
    return true;
  }

  bool is_last_of_its_stage(const Action& action, std::size_t rank) const {
    Action last;
    for (const Action& each : compute_.rows[rank]) {
      last = each.stage == action.stage ? each : last;
    }
    return last == action;
  }

  Seconds duration(const Action& action, std::size_t rank) const {
    const StageCost& cost = costs_.stages[action.stage.value];
    const Action later{Op::weight, action.stage, action.index, {}};
    const bool split = std::ranges::count(compute_.rows[rank], later) > 0;
    switch (action.op) {
      case Op::forward:
        return cost.forward;
      case Op::backward:
        return split ? cost.backward : cost.backward + cost.weight;
      default:
        return cost.weight;
    }
  }

  const Schedule& compute_;
  const ScheduleCosts& costs_;
  std::vector<double> now_;  // by rank
  std::map<Action, double> ends_;
};

TEST(Period, is_what_many_steps_in_a_row_take_on_average) {
  std::mt19937 random(3);
  const auto draw = [&] {
    return Seconds{static_cast<double>(random() % 64) / 8};
  };
  const std::vector<std::string> texts{
      "rank 0: F0 F1 B0 W0 B1 W1\nrank 1: F0 B0 F1 B1 W0 W1\n",
      "rank 0: F0 F1 F2 B0 B1 B2\nrank 1: F0 F1 B0 F2 B1 B2\n"
      "rank 2: F0 B0 F1 B1 W1 F2 B2 W2\n",
      "rank 0: 0F0 0F1 3F0 3B0 3F1 3B1 3W0 3W1 0B0 0B1\n"
      "rank 1: 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1\n"};
  for (int round = 0; round < 60; ++round) {
    const Schedule schedule = parse_schedule(texts[round % texts.size()]);
    ScheduleCosts costs = even_costs(schedule.stages(), {});
    for (StageCost& cost : costs.stages) {
      cost = {draw(), draw(), draw(), draw(), draw(), draw(), {}};
    }
    // Six divides by every number of ranks that a circuit can visit here.
    ManySteps steps(schedule, costs);
    double ended = 0;
    for (int step = 0; step < 60; ++step) {
      ended = steps.step();
    }
    const double before = ended;
    for (int step = 0; step < 6; ++step) {
      ended = steps.step();
    }
    EXPECT_NEAR(
        period(complete(schedule), costs).value, (ended - before) / 6, 1e-9);
  }
}

// When everything ends, by repeating the rules until nothing changes.
std::map<Action, double> settled_ends(const Schedule& compute,
                                      const ScheduleCosts& costs) {
  std::map<int, const Row*> owner;  // by stage
  for (const Row& row : compute.rows) {
    for (const Action& action : row) {
      owner[action.stage.value] = &row;
    }
  }
  std::map<Action, double> ends;
  // When what the same microbatch did at stage `from` is at hand at stage `to`.
  const auto arrival = [&](const Action& action, int from, Seconds message) {
    const int to = action.stage.value;
    return ends[{action.op, StageId{from}, action.index, {}}] +
           (owner[from] == owner[to] ? 0 : message.value);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Row& row : compute.rows) {
      double now = 0;
      for (const Action& action : row) {
        const int s = action.stage.value;
        const bool forward = action.op == Op::forward;
        const bool backward = action.op == Op::backward;
        if (forward && s > 0) {
          const Seconds message = costs.stages[s - 1].values;
          now = std::max(now, arrival(action, s - 1, message));
        }
        if (backward && s + 1 < compute.stages()) {
          const Seconds message = costs.stages[s + 1].gradients;
          now = std::max(now, arrival(action, s + 1, message));
        }
        const auto [f, b, w, u, values, gradients, reduce] = costs.stages[s];
        const Action weight{Op::weight, action.stage, action.index, {}};
        const bool whole = std::ranges::find(row, weight) == row.end();
        now += (forward ? f : backward ? b + (whole ? w : Seconds{}) : w).value;
        changed = changed || ends[action] != now;
        ends[action] = now;
      }
    }
  }
  return ends;
}

TEST(Simulate, uneven_stages_end_when_the_rules_settle) {
  std::mt19937 random(7);
  const auto draw = [&] {
    return Seconds{static_cast<double>(random() % 64) / 8};
  };
  for (const ScheduleKind& kind : kSchedules) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      const Schedule compute = kind.make(shapes_of(kind, ranks, 7).back());
      ScheduleCosts costs = even_costs(compute.stages(), {});
      for (StageCost& cost : costs.stages) {
        cost = {draw(), draw(), draw(), {}, draw(), draw(), {}};
      }
      const std::map<Action, double> ends = settled_ends(compute, costs);
      for (const auto& row : simulate(complete(compute), costs).rows) {
        for (const Span& span : row) {
          EXPECT_EQ(span.end.value, ends.at(span.action)) << kind.name;
        }
      }
    }
  }
}

TEST(Simulate, times_are_the_same_before_the_schedule_is_completed) {
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule compute = kind.make(shapes_of(kind, 4, 6).back());
    const ScheduleCosts costs = even_costs(
        compute.stages(), {Seconds{1}, Seconds{2}, Seconds{1}}, Seconds{0.5});
    const Timeline before = simulate(compute, costs);
    const Timeline after = simulate(complete(compute), costs);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(to_text(before.rows[rank]), to_text(after.rows[rank]));
    }
  }
}

TEST(Simulate, stages_on_one_rank_need_no_message_time) {
  const Schedule v =
      complete(parse_schedule("rank 0: 0F0 3F0 3B0 0B0\n"
                              "rank 1: 1F0 2F0 2B0 1B0\n"));
  const Timeline timeline =
      simulate(v, even_costs(4, {Seconds{1}, Seconds{1}}, Seconds{10}));
  EXPECT_EQ(to_text(timeline.rows[0]), "F0 0-1, F0 23-24, B0 24-25, B0 47-48");
  EXPECT_EQ(to_text(timeline.rows[1]),
            "F0 11-12, F0 12-13, B0 35-36, B0 36-37");
}

TEST(Simulate, forward_only_takes_one_forward_per_microbatch_and_stage) {
  const Timeline timeline = simulate(complete(forward_only(in_turn(4), 5)),
                                     even_costs(4, {Seconds{2}, Seconds{100}}));
  EXPECT_EQ(timeline.length, Seconds{2.0 * (5 + 3)});
}

TEST(Simulate, stages_that_take_no_time_have_no_bubble) {
  EXPECT_EQ(simulate(gpipe({.ranks = 2, .microbatches = 2}), even_costs(2, {}))
                .bubble(),
            0);
}

TEST(Simulate, refuses_a_schedule_that_cannot_run) {
  EXPECT_THROW(simulate(parse_schedule("rank 0: B0 F0\n"), even_costs(1, {})),
               Error);
}

TEST(Simulate, refuses_costs_that_do_not_match_the_stages) {
  const Schedule schedule = complete(gpipe({.ranks = 3, .microbatches = 2}));
  ScheduleCosts costs = even_costs(3, {Seconds{1}, Seconds{2}});
  costs.stages.pop_back();
  EXPECT_THROW(simulate(schedule, costs), Error);
  EXPECT_THROW(simulate(schedule, even_costs(2, {})), Error);
  EXPECT_THROW(simulate(schedule, even_costs(4, {})), Error);
}

TEST(Simulate, refuses_times_that_are_none) {
  const Seconds nan{std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THROW(simulate(gpipe({.ranks = 1, .microbatches = 1}),
                        even_costs(1, {Seconds{-1}, Seconds{1}})),
               Error);
  EXPECT_THROW(simulate(gpipe({.ranks = 1, .microbatches = 1}),
                        even_costs(1, {Seconds{1}, nan})),
               Error);
}

}  // namespace
}  // namespace cleave
