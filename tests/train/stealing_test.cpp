// Threads that do each other's work: nothing twice, nothing lost, no hang.
#include "cleave/train/stealing/stealing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/train/stealing/turns.h"
#include "networks.h"
#include "reference.h"

namespace cleave {
namespace {

// What the ranks of a test share: what ran where, and which messages are there.
struct Record {
  std::mutex mutex;  // guards all below
  std::multiset<Action> done;
  std::set<Action> sent;  // as their receives
  int stolen = 0;
  std::optional<Action> fails;
};

// Stands for a rank's executor.
class TestPerformer : public ActionPerformer {
 public:
  TestPerformer(Record& record, const Order& order, Rank own)
      : record_(record), order_(order), own_(own) {}

  void perform(const Row& row, std::size_t position, Rank by) override {
    const Action& action = row[position];
    const std::lock_guard lock(record_.mutex);
    for (const Action& need : order_.needs(action)) {
      EXPECT_TRUE(record_.done.contains(need))
          << to_text(action) << " before " << to_text(need);
    }
    record_.stolen += by != own_ ? 1 : 0;
    record_.done.insert(action);
    if (record_.fails == action) {
      throw Error("a test failed it", "");
    }
  }

  bool has_arrived(const Action& receive) const override {
    const std::lock_guard lock(record_.mutex);
    for (const Action& need : order_.needs(receive)) {
      if (!record_.done.contains(need)) {
        return false;
      }
    }
    return true;
  }

  [[noreturn]] void fail_late(const Action& receive,
                              Seconds /*patience*/) const override {
    throw Error("late: " + to_text(receive), "");
  }

 protected:
  Record& record_;
  const Order& order_;
  Rank own_;
};

// Holds its own rank in the first action until another rank does one of its
// row.
class HeldPerformer : public TestPerformer {
 public:
  HeldPerformer(Record& record,
                const Order& order,
                Rank own,
                std::atomic<bool>& stolen)
      : TestPerformer(record, order, own), stolen_(stolen) {}

  void perform(const Row& row, std::size_t position, Rank by) override {
    TestPerformer::perform(row, position, by);
    if (by != own_) {
      stolen_ = true;
      stolen_.notify_all();
    } else if (position == 0) {
      stolen_.wait(false);
    }
  }

 private:
  std::atomic<bool>& stolen_;
};

Plan plan_of_ranks(std::size_t ranks, const Schedule& schedule) {
  Plan plan;
  plan.devices.resize(ranks);
  plan.stages.resize(schedule.stages());
  plan.schedule = schedule;
  plan.steals = true;
  // Without, nothing may run beside the first unit of a row.
  plan.prediction = Prediction{};
  plan.prediction->stages.resize(schedule.stages());
  return plan;
}

bool never() {
  return false;
}

std::shared_ptr<const PassSchedule> complete_pass(const Schedule& passes) {
  return std::make_shared<const PassSchedule>(complete(passes));
}

// Runs every row with a thread of its own; the problems they ended with.
std::vector<std::string> run_all(
    const std::shared_ptr<const PassSchedule>& schedule, Record& record) {
  const std::size_t ranks = schedule->schedule().rows.size();
  const auto runner = make_stealing(
      plan_of_ranks(ranks, schedule->schedule()), Seconds{60}, never);
  std::vector<std::string> problems(ranks);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] {
      const Rank rank{static_cast<int>(i)};
      TestPerformer actions(record, schedule->order(), rank);
      try {
        runner->run(rank, {.schedule = schedule, .step = 1}, actions);
      } catch (const Error& error) {
        problems[i] = error.problem();
      }
    });
  }
  threads.clear();  // joins
  return problems;
}

Schedule passes_with(const ScheduleKind& kind) {
  const bool any = kind.stages_per_rank == kAnyNumber;
  return make_schedule(kind.name,
                       {.ranks = 4,
                        .stages_per_rank = any ? 3 : kind.stages_per_rank,
                        .microbatches = 6});
}

TEST(Stealing, does_everything_once_and_in_an_order_that_is_allowed) {
  for (const ScheduleKind& kind : kSchedules) {
    for (const bool clips : {false, true}) {
      Schedule passes = passes_with(kind);
      passes.synchronisation.clips = clips;
      passes.graph = StageGraph(passes.stages(), {{StageId{0}, StageId{3}}});
      const auto schedule = complete_pass(passes);
      std::multiset<Action> all;
      for (const Row& row : schedule->schedule().rows) {
        all.insert(row.begin(), row.end());
      }
      for (int time = 0; time < 10; ++time) {
        Record record;
        EXPECT_EQ(run_all(schedule, record), std::vector<std::string>(4));
        EXPECT_EQ(record.done, all) << kind.name;
      }
    }
  }
}

// Rank 0 is held in its first action, which its second does not need. Rank 1
// has a row that waits for the second: it must do that itself.
TEST(Stealing, a_rank_without_work_does_the_next_action_of_another) {
  const auto schedule =
      complete_pass(parse_schedule("rank 0: 0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1\n"
                                   "rank 1: 2F0 2B0 2F1 2B1\n"));
  Schedule rows = schedule->schedule();
  rows.rows[0] = parse_row("0F1 1F0 1SF0");
  rows.rows[1] = parse_row("2RF0 2F0");
  const auto pass = std::make_shared<const PassSchedule>(rows);
  Record record;
  record.done.insert({Op::forward, StageId{0}, 0, {}});  // what 1F0 needs
  std::atomic<bool> stolen = false;
  const auto runner = make_stealing(plan_of_ranks(2, rows), {60}, never);
  {
    const std::jthread other([&] {
      TestPerformer actions(record, pass->order(), Rank{1});
      runner->run({1}, {.schedule = pass, .step = 1}, actions);
    });
    HeldPerformer actions(record, pass->order(), Rank{0}, stolen);
    runner->run({0}, {.schedule = pass, .step = 1}, actions);
  }
  EXPECT_EQ(record.done.size(), 6u);
  EXPECT_EQ(record.stolen, 2);
}

TEST(Stealing, every_rank_gets_the_first_failure) {
  const auto schedule =
      complete_pass(make_schedule("1f1b", {.ranks = 4, .microbatches = 6}));
  for (int time = 0; time < 20; ++time) {
    Record record;
    // No rank ends before it.
    record.fails = Action{Op::forward, StageId{3}, 5, {}};
    EXPECT_EQ(run_all(schedule, record),
              std::vector<std::string>(4, "a test failed it"));
  }
}

TEST(Stealing, a_message_that_never_comes_is_an_error) {
  const auto schedule =
      complete_pass(make_schedule("gpipe", {.ranks = 2, .microbatches = 1}));
  const auto runner = make_stealing(
      plan_of_ranks(2, schedule->schedule()), Seconds{0.01}, never);
  Record record;
  TestPerformer actions(record, schedule->order(), Rank{1});
  try {
    runner->run({1}, {.schedule = schedule, .step = 1}, actions);
    FAIL() << "it ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "late: RF0");
  }
}

TEST(Stealing, ends_where_a_rank_fails_elsewhere) {
  const auto schedule =
      complete_pass(make_schedule("gpipe", {.ranks = 2, .microbatches = 1}));
  std::atomic<int> asked = 0;
  const auto runner = make_stealing(plan_of_ranks(2, schedule->schedule()),
                                    {60},
                                    [&] { return ++asked > 2; });
  Record record;
  TestPerformer actions(record, schedule->order(), Rank{1});
  EXPECT_THROW(runner->run({1}, {.schedule = schedule, .step = 1}, actions),
               Error);
}

// ---- who does what next ----

std::vector<SharedRow> rows_of(const PassSchedule& schedule,
                               std::vector<StageBytes> stages,
                               std::vector<Bytes> slack) {
  return shared_rows(schedule.order(), stages, slack);
}

bool all_arrived(const Turn&) {
  return true;
}

std::string unit_text(const SharedRow& row, const WorkUnit& unit) {
  return to_text(Row(row.row->begin() + static_cast<std::ptrdiff_t>(unit.first),
                     row.row->begin() + static_cast<std::ptrdiff_t>(unit.end)));
}

TEST(SharedRows, a_unit_is_an_action_with_its_messages) {
  const auto schedule =
      complete_pass(make_schedule("1f1b", {.ranks = 2, .microbatches = 2}));
  const auto rows = rows_of(*schedule, std::vector<StageBytes>(2), {{}, {}});
  std::vector<std::string> units;
  for (const WorkUnit& unit : rows[0].units) {
    units.push_back(unit_text(rows[0], unit));
  }
  EXPECT_EQ(
      units,
      (std::vector<std::string>{"F0 SF0", "F1 SF1", "RB0 B0", "RB1 B1", "U"}));
}

TEST(Turns, units_of_a_row_begin_in_its_order_whoever_runs_them) {
  const auto schedule =
      complete_pass(parse_schedule("rank 0: 0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1\n"
                                   "rank 1: 2F0 2F1 2B0 2B1\n"));
  const auto rows =
      rows_of(*schedule, std::vector<StageBytes>(3), {Bytes{100}, Bytes{100}});
  Turns turns(2);
  turns.open({0}, 1, rows[0]);
  const auto first = turns.begin({0}, all_arrived);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->unit, 0);
  // 1F0 needs 0F0, which runs; 0F1 may not overtake it.
  EXPECT_FALSE(turns.begin({1}, all_arrived));
  turns.end(*first);
  const auto second = turns.begin({0}, all_arrived);
  EXPECT_EQ(second->unit, 1);
  const auto stolen = turns.begin({1}, all_arrived);
  ASSERT_TRUE(stolen);  // 0F1, beside 1F0
  EXPECT_EQ(stolen->row, Rank{0});
  EXPECT_EQ(stolen->unit, 2);
  EXPECT_TRUE(turns.is_worked_on({0}));
  turns.end(*stolen);
  turns.end(*second);
  EXPECT_FALSE(turns.is_worked_on({0}));
  EXPECT_FALSE(turns.has_ended({0}));
}

TEST(Turns, what_runs_beside_the_first_stays_within_the_slack) {
  const auto schedule =
      complete_pass(parse_schedule("rank 0: 0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1\n"
                                   "rank 1: 2F0 2F1 2B0 2B1\n"));
  const std::vector<StageBytes> stages(3, {.kept = {10}, .forward_need = {30}});
  for (const std::int64_t slack : {29, 30}) {
    const auto rows = rows_of(*schedule, stages, {Bytes{slack}, Bytes{slack}});
    Turns turns(2);
    turns.open({0}, 1, rows[0]);
    const auto first = turns.begin({0}, all_arrived);
    turns.end(*first);
    const auto second = turns.begin({0}, all_arrived);
    ASSERT_TRUE(second);
    EXPECT_EQ(turns.begin({1}, all_arrived).has_value(), slack == 30);
  }
}

TEST(Turns, a_row_whose_rank_is_free_is_left_to_it) {
  const auto schedule =
      complete_pass(make_schedule("gpipe", {.ranks = 2, .microbatches = 2}));
  const auto rows =
      rows_of(*schedule, std::vector<StageBytes>(2), {Bytes{100}, Bytes{100}});
  Turns turns(2);
  turns.open({0}, 1, rows[0]);
  EXPECT_FALSE(turns.begin({1}, all_arrived));
}

TEST(Turns, wait_for_what_has_not_arrived) {
  const auto schedule =
      complete_pass(make_schedule("gpipe", {.ranks = 2, .microbatches = 1}));
  const auto rows =
      rows_of(*schedule, std::vector<StageBytes>(2), {Bytes{100}, Bytes{100}});
  Turns turns(2);
  turns.open({1}, 1, rows[1]);
  EXPECT_FALSE(turns.begin({1}, [](const Turn&) { return false; }));
  EXPECT_TRUE(turns.begin({1}, all_arrived));
}

TEST(Turns, nothing_runs_beside_the_first_unit_where_its_needs_are_unknown) {
  const auto schedule =
      complete_pass(parse_schedule("rank 0: 0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1\n"
                                   "rank 1: 2F0 2F1 2B0 2B1\n"));
  const std::vector<StageBytes> stages(3, {.forward_need = {1}});
  const auto rows = rows_of(*schedule, stages, {Bytes{}, Bytes{}});
  Turns turns(2);
  turns.open({0}, 1, rows[0]);
  turns.end(*turns.begin({0}, all_arrived));
  ASSERT_TRUE(turns.begin({0}, all_arrived));
  EXPECT_FALSE(turns.begin({1}, all_arrived));
}

// ---- with real work ----

// Ranks that steal from each other also exchange norms.
TEST(Stealing, a_v_that_clips_has_the_bits_of_one_device) {
  const Case& network = cases()[3];
  const Model model = network.make();
  const std::vector<Batch> batches = draw_batches(network);
  const Training training{.clip = 0.5, .seed = 11};
  const OneDeviceRun expected =
      plain_run(model, batches, kMicrobatches, training);
  Plan plan = plan_of(
      model, cuts_of(model.size(), 4).back(), "zb-v", kMicrobatches, kBatch, 2);
  plan.steals = true;
  for (int time = 0; time < 5; ++time) {
    expect_same_run(model, plan, batches, training, expected);
  }
}

}  // namespace
}  // namespace cleave
