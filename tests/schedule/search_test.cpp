#include "cleave/schedule/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <random>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/search/period_timer.h"
#include "cleave/schedule/validate.h"
#include "tests/schedule/published.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

// Even stages that take `cost` and keep one byte from F to W.
SearchProblem even_problem(const std::vector<Rank>& placement,
                           int microbatches,
                           StageCost cost,
                           std::int64_t limit = 0) {
  const std::size_t stages = placement.size();
  const Rank last = std::ranges::max(placement);
  return {placement,
          microbatches,
          {std::vector<StageCost>(stages, cost)},
          std::vector<StageBytes>(stages, {Bytes{1}, Bytes{1}}),
          std::vector<Bytes>(last.value + 1, Bytes{limit})};
}

constexpr StageCost kEven{Seconds{1}, Seconds{1}, Seconds{1}};

// Uneven in everything.
class RandomProblems {
 public:
  explicit RandomProblems(unsigned seed) : random_(seed) {}

  SearchProblem next(int ranks, int stages_per_rank, int microbatches) {
    SearchProblem problem{
        place(ranks, stages_per_rank), microbatches, {}, {}, {}};
    const bool splits = below(8) > 0;
    for (int stage = 0; stage < ranks * stages_per_rank; ++stage) {
      const Seconds weight = splits ? seconds(1, 8) : Seconds{};
      problem.costs.stages.push_back({.forward = seconds(1, 8),
                                      .backward = seconds(1, 8),
                                      .weight = weight,
                                      .update = seconds(0, 4),
                                      .values = seconds(0, 3),
                                      .gradients = seconds(0, 3)});
      problem.memory.push_back({Bytes{10}, below(4) * Bytes{5}});
    }
    const bool limited = below(2) == 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int stages = stages_per_rank * (1 + below(microbatches));
      problem.limits.push_back({limited ? 10 * stages : 0});
    }
    return problem;
  }

  int below(int count) { return static_cast<int>(random_() % count); }

 private:
  Seconds seconds(int least, int most) {
    return {static_cast<double>(least + below(most - least + 1))};
  }

  std::vector<Rank> place(int ranks, int stages_per_rank) {
    const ScheduleShape shape{ranks, stages_per_rank, 1};
    if (stages_per_rank == 2 && below(2) == 0) {
      return placement("zb-v", shape);
    }
    std::vector<Rank> result = placement("interleaved", shape);
    if (below(3) == 0) {
      std::ranges::sort(result);
    }
    if (below(3) == 0) {
      std::rotate(result.begin(), result.begin() + 1, result.end());
    }
    return result;
  }

  std::mt19937 random_;
};

bool fits(const Schedule& schedule, const SearchProblem& problem) {
  const std::vector<Bytes> peaks = row_peaks(schedule, problem.memory);
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    if (problem.limits[rank] > Bytes{} && peaks[rank] > problem.limits[rank]) {
      return false;
    }
  }
  return true;
}

// The schedules of the registry that have the problem's placement and fit.
std::vector<Schedule> registry_schedules(const SearchProblem& problem) {
  const int ranks = static_cast<int>(problem.limits.size());
  const int stages = static_cast<int>(problem.placement.size());
  std::vector<Schedule> found;
  for (const ScheduleKind& kind : kSchedules) {
    for (const auto& shape : shapes_of(kind, ranks, problem.microbatches)) {
      if (shape.stages() == stages &&
          placement(kind.name, shape) == problem.placement &&
          fits(kind.make(shape), problem)) {
        found.push_back(kind.make(shape));
      }
    }
  }
  return found;
}

TEST(Search, is_never_worse_than_the_registry_and_keeps_the_limits) {
  RandomProblems random(1);
  int compared = 0;
  int shorter = 0;
  for (int round = 0; round < 200; ++round) {
    const SearchProblem problem = random.next(
        1 + random.below(4), 1 + random.below(2), 1 + random.below(7));
    const std::optional<Schedule> found = search_schedule(problem);
    ASSERT_TRUE(found);
    EXPECT_EQ(to_text(problems(*found), *found), "");
    EXPECT_TRUE(fits(*found, problem));
    const double time = period(*found, problem.costs).value;
    EXPECT_GE(
        time * (1 + 1e-9),
        least_period(problem.costs, problem.placement, problem.microbatches)
            .value);
    for (const Schedule& known : registry_schedules(problem)) {
      const double other = period(known, problem.costs).value;
      EXPECT_LE(time, other * (1 + 1e-9));
      ++compared;
      shorter += time < other * (1 - 1e-9) ? 1 : 0;
    }
  }
  // The comparison says something only where both happen.
  EXPECT_GT(compared, 100);
  EXPECT_GT(shorter, compared / 4);
}

TEST(Search, has_its_stages_where_the_problem_says) {
  const SearchProblem problem =
      even_problem({{1}, {0}, {2}, {2}, {0}, {1}}, 5, kEven);
  const Schedule found = search_schedule(problem).value();
  for (Rank rank; rank.value < 3; ++rank.value) {
    for (const Action& action : found.rows[rank.value]) {
      EXPECT_EQ(problem.placement[action.stage.value], rank);
    }
  }
}

TEST(Search, a_rank_may_have_no_stage) {
  const SearchProblem problem = even_problem({{0}, {2}}, 3, kEven);
  const Schedule found = search_schedule(problem).value();
  EXPECT_EQ(to_text(problems(found), found), "");
  EXPECT_TRUE(found.rows[1].empty());
  EXPECT_DOUBLE_EQ(period(found, problem.costs).value, 9);
}

TEST(Search, gives_the_same_schedule_every_time) {
  RandomProblems random(2);
  for (int round = 0; round < 10; ++round) {
    const SearchProblem problem = random.next(3, 2, 6);
    EXPECT_EQ(search_schedule(problem), search_schedule(problem));
  }
}

// Every order of one stage's F, B and W that keeps the order of the
// microbatches and the limit.
class AllRows {
 public:
  AllRows(const SearchProblem& problem, int stage, const PeriodTimer& timer)
      : problem_(problem), stage_(stage), timer_(timer) {
    extend(0, 0, 0);
  }

  std::vector<NumberedRow> rows;

 private:
  void extend(int forwards, int backwards, int weights) {
    const StageBytes& bytes = problem_.memory[stage_];
    const Bytes held = (forwards - backwards) * bytes.kept +
                       (backwards - weights) * bytes.kept_for_weights;
    const Bytes limit = problem_.limits[stage_];
    if (limit > Bytes{} && held > limit) {
      return;
    }
    if (weights == problem_.microbatches) {
      rows.push_back(row_);
      return;
    }
    if (forwards < problem_.microbatches) {
      push({Op::forward, StageId{stage_}, forwards, {}});
      extend(forwards + 1, backwards, weights);
      row_.pop_back();
    }
    if (backwards < forwards) {
      push({Op::backward, StageId{stage_}, backwards, {}});
      extend(forwards, backwards + 1, weights);
      row_.pop_back();
    }
    if (weights < backwards) {
      push({Op::weight, StageId{stage_}, weights, {}});
      extend(forwards, backwards, weights + 1);
      row_.pop_back();
    }
  }

  void push(const Action& action) { row_.push_back(timer_.number(action)); }

  const SearchProblem& problem_;
  int stage_;
  const PeriodTimer& timer_;
  NumberedRow row_;
};

// By trying everything; one stage per rank, all with W.
double shortest_period(const SearchProblem& problem) {
  PeriodTimer timer(problem.placement, problem.microbatches, problem.costs);
  const int ranks = static_cast<int>(problem.limits.size());
  std::vector<std::vector<NumberedRow>> choices(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    choices[rank] = AllRows(problem, rank, timer).rows;
  }
  double shortest = std::numeric_limits<double>::infinity();
  NumberedRows rows(ranks);
  const std::function<void(int)> choose = [&](int rank) {
    if (rank == ranks) {
      const std::optional<Seconds> time = timer.period(rows);
      shortest = time ? std::min(shortest, time->value) : shortest;
      return;
    }
    for (const NumberedRow& row : choices[rank]) {
      rows[rank] = row;
      choose(rank + 1);
    }
  };
  choose(0);
  return shortest;
}

// How often the search finds the shortest, and by how much it misses.
struct Misses {
  int count = 0;
  double worst = 0;
};

Misses count_misses(int ranks, int microbatches, int rounds, unsigned seed) {
  RandomProblems random(seed);
  Misses misses;
  for (int round = 0; round < rounds; ++round) {
    SearchProblem problem = random.next(ranks, 1, microbatches);
    problem.placement = in_turn(ranks);
    for (StageCost& cost : problem.costs.stages) {
      cost.weight += Seconds{0.5};
    }
    for (StageBytes& bytes : problem.memory) {
      bytes.kept_for_weights = std::min(bytes.kept, bytes.kept_for_weights);
    }
    const double shortest = shortest_period(problem);
    const Schedule found = search_schedule(problem).value();
    const double miss = period(found, problem.costs).value / shortest - 1;
    EXPECT_GE(miss, -1e-9);
    misses.count += miss > 1e-9 ? 1 : 0;
    misses.worst = std::max(misses.worst, miss);
  }
  return misses;
}

TEST(Search, finds_the_shortest_of_all_on_two_ranks) {
  EXPECT_EQ(count_misses(2, 2, 50, 1).count, 0);
  EXPECT_EQ(count_misses(2, 3, 50, 2).count, 0);
}

TEST(Search, nearly_always_finds_the_shortest_of_all_on_three_ranks) {
  const Misses misses = count_misses(3, 3, 20, 3);
  EXPECT_LE(misses.count, 2);
  EXPECT_LE(misses.worst, 0.03);
}

TEST(Search, even_stages_never_wait_where_memory_allows) {
  for (const int ranks : {1, 2, 4}) {
    const SearchProblem problem = even_problem(in_turn(ranks), 8, kEven);
    const Schedule found = search_schedule(problem).value();
    EXPECT_DOUBLE_EQ(period(found, problem.costs).value, 24);
  }
}

TEST(Search, of_equally_short_schedules_it_takes_one_that_keeps_less) {
  const SearchProblem problem = even_problem(in_turn(1), 8, kEven);
  const Schedule found = search_schedule(problem).value();
  EXPECT_EQ(to_text(found),
            "rank 0: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7\n");
}

TEST(Search, finds_nothing_where_a_microbatch_does_not_fit) {
  SearchProblem problem =
      even_problem(placement("zb-v", {2, 2, 1}), 3, kEven, 2);
  EXPECT_TRUE(search_schedule(problem));
  problem.limits[1] = Bytes{1};
  EXPECT_FALSE(search_schedule(problem));
}

TEST(Search, a_whole_backward_is_taken_where_a_split_one_does_not_fit) {
  SearchProblem problem = even_problem(in_turn(2), 4, kEven, 2);
  for (StageBytes& bytes : problem.memory) {
    bytes.kept_for_weights = Bytes{5};
  }
  EXPECT_EQ(search_schedule(problem), one_f_one_b({2, 1, 4}));
}

TEST(Search, weights_that_take_no_time_are_never_done_apart) {
  const Schedule found =
      search_schedule(
          even_problem(in_turn(3), 6, {Seconds{1}, Seconds{2}, Seconds{0}}))
          .value();
  for (const Row& row : found.rows) {
    EXPECT_EQ(std::ranges::count(row, Op::weight, &Action::op), 0);
  }
}

TEST(Search, refuses_numbers_that_do_not_fit_together) {
  const SearchProblem good = even_problem(in_turn(2), 2, kEven);
  SearchProblem bad = good;
  bad.limits.pop_back();
  EXPECT_THROW(search_schedule(bad), Error);
  bad = good;
  bad.memory.pop_back();
  EXPECT_THROW(search_schedule(bad), Error);
  bad = good;
  bad.costs.stages.pop_back();
  EXPECT_THROW(search_schedule(bad), Error);
  bad = good;
  bad.microbatches = 0;
  EXPECT_THROW(search_schedule(bad), Error);
  EXPECT_THROW(search_schedule({}), Error);
}

// What the paper's models keep, by its table 1: 34 + 5 heads * length / hidden
// for B and 32 for W, per layer.
SearchProblem published_problem(const PublishedRow& row, int copies) {
  const Bytes kept{34 + 5 * 8};
  return {in_turn(row.ranks),
          row.microbatches,
          row.costs(1),
          std::vector<StageBytes>(row.ranks, {kept, Bytes{32}}),
          std::vector<Bytes>(row.ranks, copies * (row.ranks * kept))};
}

TEST(Search, is_as_good_as_the_published_search) {
  for (const PublishedRow& row : kPublished) {
    if (row.ranks > 8) {
      continue;  // the same again, and slow
    }
    const auto bubble = [&](int copies) {
      const SearchProblem problem = published_problem(row, copies);
      const Schedule found = search_schedule(problem).value();
      EXPECT_TRUE(fits(found, problem));
      const Seconds time = period(found, problem.costs);
      return (time - row.work()) / time;
    };
    const double once = bubble(1);
    const double twice = bubble(2);
    std::cout << row.ranks << " ranks, " << row.microbatches
              << " microbatches: " << once << " (published " << row.searched_1p
              << "), in twice the memory " << twice << " (published "
              << row.searched_2p << ")\n";
    EXPECT_LE(once, row.searched_1p + 0.5e-4);
    EXPECT_LE(twice, row.searched_2p + 0.001);
  }
}

// Some schedule of the problem's stages that can run, made by chance: any rank
// does anything that it can, some backwards leaving a W and some not.
class RandomSchedule {
 public:
  RandomSchedule(const SearchProblem& problem, RandomProblems& random)
      : problem_(problem),
        random_(random),
        done_(problem.placement.size()),
        splits_(problem.placement.size()) {
    for (std::vector<bool>& stage : splits_) {
      for (int i = 0; i < problem.microbatches; ++i) {
        stage.push_back(random.below(2) == 0);
      }
    }
  }

  Schedule make() {
    const int stages = static_cast<int>(problem_.placement.size());
    Schedule schedule{stages, problem_.microbatches, {}, {}};
    schedule.rows.resize(problem_.limits.size());
    for (std::vector<Action> ready = all_ready(); !ready.empty();
         ready = all_ready()) {
      const Action next = ready[random_.below(static_cast<int>(ready.size()))];
      const int stage = next.stage.value;
      schedule.rows[problem_.placement[stage].value].push_back(next);
      int& done = done_[stage].of[static_cast<int>(next.op)];
      done = next.index + 1;
    }
    return schedule;
  }

 private:
  struct Done {
    std::array<int, 3> of{};  // by op: the next microbatch
  };

  // The stage's next microbatch of this op; a W skips those that have none.
  int next(Op op, int stage) const {
    int index = done_[stage].of[static_cast<int>(op)];
    while (op == Op::weight && index < problem_.microbatches &&
           !splits_[stage][index]) {
      ++index;
    }
    return index;
  }

  // Gradients must be added in the order of the microbatches, too.
  bool can(Op op, int stage, int index) const {
    const int last = static_cast<int>(done_.size()) - 1;
    const auto has = [&](Op other, int where) {
      return done_[where].of[static_cast<int>(other)] > index;
    };
    switch (op) {
      case Op::forward:
        return stage == 0 || has(op, stage - 1);
      case Op::backward:
        return (stage == last ? has(Op::forward, stage) : has(op, stage + 1)) &&
               (splits_[stage][index] || next(Op::weight, stage) > index);
      default:
        return has(Op::backward, stage);
    }
  }

  std::vector<Action> all_ready() const {
    std::vector<Action> ready;
    for (int stage = 0; stage < std::ssize(done_); ++stage) {
      for (const Op op : {Op::forward, Op::backward, Op::weight}) {
        const int index = next(op, stage);
        if (index < problem_.microbatches && can(op, stage, index)) {
          ready.push_back({op, StageId{stage}, index, {}});
        }
      }
    }
    return ready;
  }

  const SearchProblem& problem_;
  RandomProblems& random_;
  std::vector<Done> done_;  // by stage
  std::vector<std::vector<bool>> splits_;
};

TEST(PeriodTimer, gives_the_period_of_the_simulator) {
  RandomProblems random(5);
  for (int round = 0; round < 400; ++round) {
    const SearchProblem problem = random.next(
        1 + random.below(4), 1 + random.below(3), 1 + random.below(6));
    const Schedule schedule = RandomSchedule(problem, random).make();
    ASSERT_EQ(to_text(problems(schedule), schedule), "");
    PeriodTimer timer(problem.placement, problem.microbatches, problem.costs);
    const Seconds expected = period(schedule, problem.costs);
    const std::optional<Seconds> found =
        timer.period(timer.numbered(schedule.rows));
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->value, expected.value, 1e-9) << to_text(schedule);
  }
}

TEST(PeriodTimer, gives_the_period_of_the_simulator_for_the_whole_registry) {
  RandomProblems random(6);
  for (const ScheduleKind& kind : kSchedules) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (const ScheduleShape& shape : shapes_of(kind, ranks, 5)) {
        SearchProblem problem = random.next(ranks, shape.stages_per_rank, 5);
        problem.placement = placement(kind.name, shape);
        const Schedule schedule = kind.make(shape);
        PeriodTimer timer(problem.placement, 5, problem.costs);
        // The rows of a complete schedule are the same ones to it.
        EXPECT_NEAR(
            timer.period(timer.numbered(complete(schedule).rows))->value,
            period(schedule, problem.costs).value,
            1e-9)
            << to_text(kind, shape);
      }
    }
  }
}

// Many rows can never end, and those that can score the same when they come
// after others.
TEST(PeriodTimer, finds_rows_that_wait_forever_and_forgets_them) {
  RandomProblems random(8);
  int stuck = 0;
  for (int round = 0; round < 100; ++round) {
    const SearchProblem problem = random.next(3, 1, 4);
    PeriodTimer timer(problem.placement, 4, problem.costs);
    const NumberedRows good =
        timer.numbered(RandomSchedule(problem, random).make().rows);
    const Seconds before = timer.period(good).value();
    NumberedRows bad = good;
    std::ranges::rotate(bad[1], bad[1].begin() + 3);
    Schedule rotated{3, 4, {}, {}};
    for (const NumberedRow& row : bad) {
      Row& actions = rotated.rows.emplace_back();
      for (const int number : row) {
        actions.push_back(timer.action(number));
      }
    }
    const bool runs = timer.period(bad).has_value();
    EXPECT_TRUE(!runs || problems(rotated).empty() ||
                problems(rotated)[0].text.find("in order") != std::string::npos)
        << to_text(rotated);
    stuck += runs ? 0 : 1;
    EXPECT_EQ(timer.period(good), before);
  }
  EXPECT_GT(stuck, 50);
}

TEST(PeriodTimer, the_work_of_a_rank_is_all_that_keeps_it_busy) {
  RandomProblems random(9);
  for (int round = 0; round < 50; ++round) {
    const SearchProblem problem = random.next(3, 2, 1 + random.below(5));
    const Schedule schedule = RandomSchedule(problem, random).make();
    const PeriodTimer timer(
        problem.placement, problem.microbatches, problem.costs);
    const std::vector<Seconds> busy = simulate(schedule, problem.costs).busy;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_NEAR(timer.work({rank}).value, busy[rank].value, 1e-9);
    }
  }
}

TEST(LeastPeriod, is_the_work_of_the_busiest_rank) {
  ScheduleCosts costs{{{Seconds{1}, Seconds{2}, Seconds{3}},
                       {Seconds{1}, Seconds{1}, Seconds{1}},
                       {Seconds{2}, Seconds{2}, Seconds{0}}}};
  for (StageCost& cost : costs.stages) {
    cost.values = cost.gradients = Seconds{9};
  }
  EXPECT_EQ(least_period(costs, in_turn(3), 2), Seconds{12});
  EXPECT_EQ(least_period(costs, {{0}, {1}, {1}}, 2), Seconds{14});
  costs.stages[0].update = Seconds{3};
  EXPECT_EQ(least_period(costs, {{0}, {1}, {1}}, 2), Seconds{15});
}

}  // namespace
}  // namespace cleave
