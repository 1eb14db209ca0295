// Ranks that share their rows: who does what, and in which order.
#include "cleave/schedule/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cleave/error.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/simulate_lending.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

constexpr Rank kFirst{0};
constexpr Rank kSecond{1};

const Bytes kPlenty{std::int64_t{1} << 60};

std::vector<SharedRow> rows_of(const Schedule& schedule,
                               Bytes limit = kPlenty,
                               const StageBytes& bytes = {}) {
  return shared_rows(schedule,
                     std::vector<StageBytes>(schedule.stages, bytes),
                     std::vector<Bytes>(schedule.rows.size(), limit));
}

std::vector<SharedRow> rows_of(const std::string& text) {
  return rows_of(parse_schedule(text));
}

bool always(const Turn& /*turn*/) {
  return true;
}

bool never(const Turn& /*turn*/) {
  return false;
}

constexpr StageBytes kSome{.kept = {10}, .forward_need = {15}};

const char* const kOneFOneB =
    "rank 0: 0F0 0F1 0B0 0F2 0B1 0B2\n"
    "rank 1: 1F0 1B0 1F1 1B1 1F2 1B2\n";

const char* const kThreeStages =
    "rank 0: 0F0 1F0 0F1 1F1 1B0 1B1 0B0 0B1\n"
    "rank 1: 2F0 2F1 2B0 2B1\n";

// Begins and ends the rank's next action, without messages.
void do_next(Turns& turns, Rank who) {
  turns.end(turns.begin(who, never).value());
}

// What the rank does next, as "row.action", or "-".
std::string begun(Turns& turns, Rank who) {
  const std::optional<Turn> turn = turns.begin(who, always);
  return turn ? std::to_string(turn->row.value) + "." +
                    to_text(turns.at(*turn).action)
              : "-";
}

TEST(SharedRows, know_their_messages) {
  const std::vector<SharedRow> rows = rows_of(
      "rank 0: 0F0 1F0 1B0 0B0 0W0\n"
      "rank 1: 2F0 2B0\n");
  const std::vector<SharedAction>& first = rows[0].actions;
  EXPECT_FALSE(first[0].receive || first[0].send);
  EXPECT_EQ(first[1].send, (Action{Op::send_forward, {0}, {1}}));
  EXPECT_EQ(first[2].receive, (Action{Op::receive_backward, {0}, {1}}));
  EXPECT_FALSE(first[3].receive || first[3].send || first[4].send);
  EXPECT_EQ(rows[1].actions[0].receive,
            (Action{Op::receive_forward, {0}, {2}}));
  EXPECT_EQ(rows[1].actions[1].send, (Action{Op::send_backward, {0}, {2}}));
}

TEST(SharedRows, keep_the_order_of_what_adds_to_the_same_numbers) {
  const auto needs = [](const std::string& row, int place) {
    std::vector<int> found =
        rows_of("rank 0: " + row + "\n")[0].actions[place].needs;
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    return found;
  };
  using Places = std::vector<int>;
  // Forwards of a stage, one after the other; nothing else holds them up.
  EXPECT_EQ(needs("F0 F1 B0 F2 B1 B2", 3), (Places{1}));
  // A backward waits for its forward and for the backward before.
  EXPECT_EQ(needs("F0 F1 B0 F2 B1 B2", 4), (Places{1, 2}));
  // B and W may overlap, but for the very last.
  EXPECT_EQ(needs("F0 F1 B0 B1 W0 W1", 3), (Places{1, 2}));
  EXPECT_EQ(needs("F0 F1 B0 B1 W0 W1", 4), (Places{2}));
  EXPECT_EQ(needs("F0 F1 B0 B1 W0 W1", 5), (Places{3, 4}));
  // Where some backwards have a W and others have none, all are in order.
  EXPECT_EQ(needs("F0 F1 F2 B0 W0 B1 B2 W2", 5), (Places{1, 3, 4}));
  EXPECT_EQ(needs("F0 F1 F2 B0 W0 B1 B2 W2", 7), (Places{4, 6}));
}

TEST(SharedRows, know_which_action_completes_a_stage) {
  const std::vector<SharedRow> rows =
      rows_of("rank 0: 0F0 1F0 1B0 0B0 0W0 1W0\n");
  std::vector<bool> completes;
  for (const SharedAction& action : rows[0].actions) {
    completes.push_back(action.completes);
  }
  EXPECT_EQ(completes,
            (std::vector<bool>{false, false, false, false, true, true}));
}

TEST(Turns, a_rank_does_its_own_row_first_and_helps_where_it_would_wait) {
  const std::vector<SharedRow> rows = rows_of(kThreeStages);
  Turns turns(2);
  turns.open(kFirst, 1, rows[0]);
  turns.open(kSecond, 1, rows[1]);
  const Turn first = turns.begin(kFirst, never).value();
  EXPECT_EQ(to_text(turns.at(first).action, true), "0F0");
  // The next of row 0 needs that one.
  EXPECT_FALSE(turns.begin(kSecond, never));
  turns.end(first);
  const Turn second = turns.begin(kFirst, never).value();
  EXPECT_EQ(to_text(turns.at(second).action, true), "1F0");
  const Turn lent = turns.begin(kSecond, never).value();
  EXPECT_EQ(lent.row, kFirst);
  EXPECT_EQ(to_text(turns.at(lent).action, true), "0F1");
  turns.end(second);
  turns.end(lent);
  // With a message its own row counts more.
  EXPECT_EQ(turns.begin(kSecond, always)->row, kSecond);
}

TEST(Turns, a_row_whose_rank_is_free_is_left_to_it) {
  const std::vector<SharedRow> rows = rows_of(
      "rank 0: F0 F1 B0 B1\n"
      "rank 1: F0 F1 B0 B1\n");
  Turns turns(2);
  turns.open(kFirst, 1, rows[0]);
  turns.open(kSecond, 1, rows[1]);
  EXPECT_FALSE(turns.begin(kSecond, never));
}

TEST(Turns, the_row_furthest_behind_is_helped_first) {
  const std::vector<SharedRow> rows = rows_of(
      "rank 0: 0F0 3F0 3B0 0B0\n"
      "rank 1: 1F0 4F0 4B0 1B0\n"
      "rank 2: 2F0 5F0 5B0 2B0\n");
  Turns turns(3);
  turns.open(kFirst, 2, rows[0]);
  turns.open(kSecond, 1, rows[1]);
  EXPECT_EQ(begun(turns, kFirst), "0.F0");
  EXPECT_EQ(begun(turns, kSecond), "1.F0");
  // Row 1 is of an earlier step.
  EXPECT_EQ(begun(turns, Rank{2}), "1.F0");
}

TEST(Turns, no_second_action_begins_where_memory_does_not_allow_it) {
  const Schedule schedule = parse_schedule(
      "rank 0: 0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1\n"
      "rank 1: 2F0 2B0 2F1 2B1\n");
  for (const auto& [limit, expected] :
       std::vector<std::pair<Bytes, std::string>>{{{39}, "-"},
                                                  {{40}, "0.F1"}}) {
    const std::vector<SharedRow> rows = rows_of(schedule, limit, kSome);
    Turns turns(2);
    turns.open(kFirst, 1, rows[0]);
    do_next(turns, kFirst);
    EXPECT_EQ(begun(turns, kFirst), "0.F0");     // 10 kept, 15 needed
    EXPECT_EQ(begun(turns, kSecond), expected);  // 15 more
  }
}

TEST(Turns, where_nobody_could_do_anything_one_action_may_need_more) {
  const std::vector<SharedRow> rows =
      rows_of(parse_schedule("rank 0: F0 B0\n"), Bytes{1}, {.kept = {10}});
  Turns turns(1);
  turns.open(kFirst, 1, rows[0]);
  const Turn turn = turns.begin(kFirst, always).value();
  EXPECT_EQ(turns.most_needed(kFirst), Bytes{10});
  EXPECT_FALSE(turns.has_ended(kFirst));
  turns.end(turn);
  turns.end(turns.begin(kFirst, always).value());
  EXPECT_TRUE(turns.has_ended(kFirst));
}

TEST(Turns, what_comes_later_is_begun_where_nothing_else_can) {
  const std::vector<SharedRow> rows = rows_of(kOneFOneB);
  Turns turns(2);
  turns.open(kFirst, 1, rows[0]);
  do_next(turns, kFirst);
  do_next(turns, kFirst);
  const Turn early = turns.begin(kFirst, never).value();
  EXPECT_EQ(to_text(turns.at(early).action), "F2");
  EXPECT_EQ(to_text(turns.next(kFirst).action), "B0");
  // A backward waits for the one before, and for its message.
  EXPECT_FALSE(turns.begin(kSecond, never));
  EXPECT_EQ(begun(turns, kSecond), "0.B0");
  turns.end(early);
  EXPECT_EQ(begun(turns, kFirst), "-");
}

TEST(Turns, a_row_in_order_begins_nothing_before_its_time) {
  std::vector<SharedRow> rows = rows_of(kOneFOneB);
  rows[0].in_order = true;
  Turns turns(2);
  turns.open(kFirst, 1, rows[0]);
  do_next(turns, kFirst);
  do_next(turns, kFirst);
  EXPECT_FALSE(turns.begin(kFirst, never));
  EXPECT_EQ(begun(turns, kFirst), "0.B0");
  EXPECT_EQ(begun(turns, kSecond), "0.F2");  // beside it, in its turn
}

TEST(Turns, nothing_is_begun_early_without_room_for_what_it_overtakes) {
  // F2 needs 35 at once, and B0 then needs as much.
  for (const auto& [limit, can] :
       std::vector<std::pair<Bytes, bool>>{{{34}, false}, {{35}, true}}) {
    const std::vector<SharedRow> rows =
        rows_of(parse_schedule(kOneFOneB), limit, kSome);
    Turns turns(2);
    turns.open(kFirst, 1, rows[0]);
    do_next(turns, kFirst);
    do_next(turns, kFirst);
    EXPECT_EQ(turns.begin(kFirst, never).has_value(), can);
  }
}

// By then 2 wait, F2 leaves a third, and B0 still needs 25.
TEST(Turns, what_waits_leaves_less_room_for_what_is_overtaken) {
  StageBytes bytes = kSome;
  bytes.first_whole_need = {5};
  bytes.leaving = {1};
  for (const auto& [limit, can] :
       std::vector<std::pair<Bytes, bool>>{{{37}, false}, {{38}, true}}) {
    std::vector<SharedRow> rows =
        rows_of(parse_schedule(kOneFOneB), kPlenty, bytes);
    rows[0].limit = limit;
    Turns turns(2);
    turns.open(kFirst, 1, rows[0]);
    do_next(turns, kFirst);
    do_next(turns, kFirst);
    EXPECT_EQ(turns.begin(kFirst, never).has_value(), can);
  }
}

// What the first stage's F leaves for the second takes up its rank's memory.
TEST(Turns, nothing_begins_where_too_much_waits_until_it_is_taken) {
  const std::vector<SharedRow> rows =
      rows_of(parse_schedule(kOneFOneB), Bytes{6}, {.leaving = {3}});
  Turns turns(2);
  turns.open(kFirst, 1, rows[0]);
  turns.open(kSecond, 1, rows[1]);
  do_next(turns, kFirst);
  do_next(turns, kFirst);
  EXPECT_FALSE(turns.begin(kFirst, never));
  const Turn taking = turns.begin(kSecond, always).value();  // F0
  turns.end(turns.begin(kFirst, never).value());             // F2, early
  EXPECT_EQ(turns.most_needed(kFirst), Bytes{6});
  turns.end(taking);
  EXPECT_EQ(begun(turns, kSecond), "1.B0");
}

// What the first stage keeps of what it sent counts for the second one, from
// whose B on it is there for the first one's only.
TEST(Turns, what_two_stages_had_waits_until_both_have_ended_their_backward) {
  const std::vector<SharedRow> rows = rows_of(
      parse_schedule(kOneFOneB), kPlenty, {.returning = {3}, .shared = {4}});
  Turns turns(2);
  turns.open(kFirst, 1, rows[0]);
  turns.open(kSecond, 1, rows[1]);
  do_next(turns, kFirst);                           // F0
  do_next(turns, kFirst);                           // F1
  turns.end(turns.begin(kSecond, always).value());  // F0
  turns.end(turns.begin(kSecond, always).value());  // B0
  EXPECT_EQ(turns.most_needed(kSecond), Bytes{7});
  const Turn back = turns.begin(kFirst, always).value();  // B0
  EXPECT_EQ(turns.at(back).taken, Bytes{3});
  turns.end(turns.begin(kSecond, always).value());  // F1
  turns.end(turns.begin(kSecond, always).value());  // B1: 4 and 7
  EXPECT_EQ(turns.most_needed(kSecond), Bytes{11});
  turns.end(back);
  turns.end(turns.begin(kFirst, always).value());   // F2
  turns.end(turns.begin(kFirst, always).value());   // B1
  turns.end(turns.begin(kSecond, always).value());  // F2
  turns.end(turns.begin(kSecond, always).value());  // B2: 7
  EXPECT_EQ(turns.most_needed(kSecond), Bytes{11});
}

TEST(Turns, a_rank_that_is_yet_to_come_is_waited_for) {
  const std::vector<SharedRow> rows =
      rows_of(parse_schedule(kOneFOneB), Bytes{3}, {.leaving = {3}});
  Turns turns(2);
  turns.open(kFirst, 1, rows[0]);
  do_next(turns, kFirst);
  EXPECT_FALSE(turns.begin(kFirst, never));  // it would leave a second one
  turns.open(kSecond, 1, rows[1]);
  EXPECT_EQ(begun(turns, kSecond), "1.F0");
  EXPECT_TRUE(turns.begin(kFirst, never));
}

// Even stages unless it draws them.
ScheduleCosts costs_of(int stages, std::mt19937* random = nullptr) {
  std::uniform_real_distribution<double> some(0.5, 2);
  const auto time = [&](double even) {
    return Seconds{random != nullptr ? some(*random) : even};
  };
  ScheduleCosts costs;
  for (int stage = 0; stage < stages; ++stage) {
    costs.stages.push_back({time(1), time(1), time(1)});
    costs.updates.push_back(time(0));
  }
  for (int cut = 0; cut + 1 < stages; ++cut) {
    const Seconds message = random != nullptr ? 0.1 * time(1) : Seconds{};
    costs.forward_message.push_back(message);
    costs.backward_message.push_back(message);
  }
  return costs;
}

TEST(SimulateLending, one_rank_does_its_row_in_order) {
  const Timeline timeline =
      simulate_lending(rows_of("rank 0: F0 F1 B0 B1\n"), costs_of(1));
  EXPECT_EQ(timeline.length, Seconds{6});
  EXPECT_EQ(timeline.bubble(), 0);
}

// On two ranks each of which would wait for a third of the time.
TEST(SimulateLending, closes_gaps_of_gpipe) {
  const Schedule schedule = parse_schedule(kThreeStages);
  const ScheduleCosts costs = costs_of(3);
  const Timeline alone = simulate(schedule, costs);
  const Timeline lent = simulate_lending(rows_of(schedule), costs);
  EXPECT_LT(lent.length, alone.length);
  EXPECT_LT(lent.bubble(), alone.bubble());
}

// The first rank has nothing to do until the second begins 1F1.
TEST(SimulateLending, who_waits_helps_with_what_another_makes_possible) {
  ScheduleCosts costs = costs_of(2);
  costs.forward_message = {Seconds{0.25}};
  const Timeline timeline =
      simulate_lending(rows_of("rank 0: 0F0 0F1 0B0 0B1\n"
                               "rank 1: 1F0 1F1 1B0 1B1\n"),
                       costs);
  const Span& helped = timeline.rows[0].at(2);
  EXPECT_EQ(to_text(helped.action, true), "1B0");
  EXPECT_EQ(helped.start, timeline.rows[1].at(1).start);
}

// F1 of the first stage is done by the second rank, and what follows by the
// first: both find what they need elsewhere.
TEST(SimulateLending, what_moves_takes_longer) {
  const Schedule schedule = parse_schedule(kThreeStages);
  ScheduleCosts costs = costs_of(3);
  const std::vector<SharedRow> rows = rows_of(schedule);
  const Timeline staying = simulate_lending(rows, costs);
  costs.moving = 0.5;
  const Timeline moving = simulate_lending(rows, costs);
  EXPECT_GT(moving.length, staying.length);
  std::map<StageId, int> last;  // the rank that did the stage's last action
  std::vector<std::pair<Span, int>> spans;
  for (int rank = 0; rank < std::ssize(moving.rows); ++rank) {
    for (const Span& span : moving.rows[rank]) {
      spans.emplace_back(span, rank);
    }
  }
  std::ranges::sort(
      spans, {}, [](const auto& entry) { return entry.first.start; });
  int moves = 0;
  for (const auto& [span, rank] : spans) {
    const auto [place, is_first] = last.try_emplace(span.action.stage, rank);
    const bool moved = !is_first && std::exchange(place->second, rank) != rank;
    const double planned = span.action.op == Op::forward ? 1 : 2;
    EXPECT_DOUBLE_EQ((span.end - span.start).value,
                     moved ? 1.5 * planned : planned)
        << to_text(span.action, true);
    moves += moved ? 1 : 0;
  }
  EXPECT_GT(moves, 0);
}

// Of the first rank, B0 begins beside B1 of the second; all else alone.
TEST(SimulateOwn, ranks_of_one_core_have_what_others_leave_them) {
  ScheduleCosts costs = costs_of(2);
  costs.forward_message = costs.backward_message = {Seconds{0.25}};
  costs.cores = {7, 7};
  const Timeline timeline = simulate_own(rows_of("rank 0: 0F0 0F1 0B0 0B1\n"
                                                 "rank 1: 1F0 1F1 1B0 1B1\n"),
                                         costs);
  std::vector<Seconds> times;
  for (const Span& span : timeline.rows[0]) {
    times.push_back(span.end - span.start);
  }
  EXPECT_EQ(times, (std::vector<Seconds>{{0.5}, {0.5}, {2}, {1}}));
  costs.cores = {7};
  EXPECT_THROW(simulate_own(rows_of(kOneFOneB), costs), Error);
}

TEST(SimulateOwn, ranks_with_cores_of_their_own_take_turns_with_nobody) {
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule = make_schedule(
        kind.name, shapes_of(kind, /*ranks=*/3, /*microbatches=*/6).front());
    std::mt19937 random(9);
    ScheduleCosts costs = costs_of(schedule.stages, &random);
    costs.updates.clear();  // drawn behind a row, and done before its end
    const Timeline alone = simulate(schedule, costs);
    for (const std::vector<int>& cores :
         {std::vector<int>{}, std::vector<int>{-1, -1, -1}, {4, 2, 3}}) {
      costs.cores = cores;
      const Timeline own = simulate_own(rows_of(schedule), costs);
      EXPECT_NEAR(own.length.value, alone.length.value, 1e-9) << kind.name;
      EXPECT_NEAR(own.bubble(), alone.bubble(), 1e-9) << kind.name;
    }
  }
}

TEST(SimulateOwnSteps, take_the_period_of_ranks_that_do_not_lend) {
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule = make_schedule(
        kind.name, shapes_of(kind, /*ranks=*/3, /*microbatches=*/6).front());
    std::mt19937 random(8);
    const ScheduleCosts costs = costs_of(schedule.stages, &random);
    EXPECT_NEAR(
        simulate_own_steps(rows_of(schedule), costs, std::nullopt).value,
        period(schedule, costs).value,
        1e-9)
        << kind.name;
  }
}

// All that must hold of a step, whoever does what.
void expect_is_sound(const Schedule& schedule, const Timeline& timeline) {
  const Order order(schedule);
  std::map<Action, Span> spans;
  std::size_t count = 0;
  for (const std::vector<Span>& row : timeline.rows) {
    for (std::size_t i = 0; i < row.size(); ++i, ++count) {
      spans.emplace(row[i].action, row[i]);
      EXPECT_TRUE(i == 0 || row[i - 1].end <= row[i].start);
    }
  }
  EXPECT_EQ(spans.size(), count);
  for (const Row& row : schedule.rows) {
    std::map<std::pair<StageId, Op>, Seconds> last;  // of a stage, a kind
    for (const Action& action : row) {
      ASSERT_TRUE(spans.contains(action)) << to_text(action, true);
      const Span& span = spans.at(action);
      Seconds& before = last[{action.stage, action.op}];
      EXPECT_LE(before, span.start) << "two of a kind at once, or not in order";
      before = span.end;
      for (const Action& need : order.needs(action)) {
        EXPECT_LE(spans.at(need).end, span.start) << to_text(need, true);
      }
    }
  }
}

TEST(SimulateLending, every_schedule_stays_sound) {
  std::mt19937 random(5);
  for (const ScheduleKind& kind : kSchedules) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const int microbatches : {1, 3, 8}) {
        for (const ScheduleShape& shape :
             shapes_of(kind, ranks, microbatches)) {
          SCOPED_TRACE(to_text(kind, shape));
          const Schedule schedule = make_schedule(kind.name, shape);
          for (const Bytes limit : {kPlenty, Bytes{1}}) {
            std::vector<SharedRow> rows =
                rows_of(schedule, kPlenty, {.kept = {10}, .leaving = {3}});
            for (SharedRow& row : rows) {
              row.limit = limit;
            }
            expect_is_sound(
                schedule,
                simulate_lending(rows, costs_of(schedule.stages, &random)));
          }
        }
      }
    }
  }
}

TEST(SimulateLending, steps_need_no_more_than_allowed_or_than_alone) {
  std::mt19937 random(6);
  const StageBytes bytes{.kept = {100},
                         .kept_for_weights = {60},
                         .forward_need = {130},
                         .backward_need = {40},
                         .whole_need = {30},
                         .first_whole_need = {50},
                         .weight_need = {12},
                         .first_weight_need = {27},
                         .gradients = {50},
                         .leaving = {7},
                         .returning = {9}};
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-v"}) {
    const Schedule schedule =
        make_schedule(name,
                      {.ranks = 4,
                       .stages_per_rank = stages_per_rank_of(name),
                       .microbatches = 8});
    const std::vector<StageBytes> stages(schedule.stages, bytes);
    std::vector<Bytes> alone = peak_bytes(schedule, stages);
    for (Bytes& bytes_alone : alone) {
      bytes_alone += schedule.microbatches * (bytes.leaving + bytes.returning);
    }
    for (const Bytes room : {Bytes{0}, Bytes{35}, Bytes{120}, Bytes{400}}) {
      std::vector<Bytes> limits = alone;
      for (Bytes& limit : limits) {
        limit += room;
      }
      const LentSteps steps =
          simulate_lent_steps(shared_rows(schedule, stages, limits),
                              costs_of(schedule.stages, &random));
      for (std::size_t rank = 0; rank < limits.size(); ++rank) {
        EXPECT_LE(steps.most[rank], limits[rank]) << name << " rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace cleave
