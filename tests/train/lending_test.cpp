// Threads that do each other's work: nothing twice, nothing lost, no hang.
#include "cleave/train/lending.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "cleave/error.h"
#include "cleave/schedule/registry.h"

namespace cleave {
namespace {

// What the ranks of a test share: who did what, and which messages are there.
struct Record {
  std::mutex mutex;  // guards all below
  std::multiset<Action> done;
  std::set<Action> sent;
  std::set<Action> taken;
  int lent = 0;
  std::optional<Action> fails;
};

Action receive_of(const Action& send) {
  const auto [op, microbatch, stage] = send;
  return op == Op::send_forward
             ? Action{Op::receive_forward, microbatch, {stage.value + 1}}
             : Action{Op::receive_backward, microbatch, {stage.value - 1}};
}

class TestWorker : public RowWorker {
 public:
  TestWorker(Record& record, Rank own) : record_(record), own_(own) {}

  void take(const SharedAction& action, Rank /*by*/) override {
    if (action.receive) {
      const std::lock_guard lock(record_.mutex);
      EXPECT_EQ(record_.sent.erase(*action.receive), 1U);
      record_.taken.insert(*action.receive);
    }
  }

  void act(const SharedAction& action, Rank by) override {
    const std::lock_guard lock(record_.mutex);
    EXPECT_TRUE(!action.receive || record_.taken.contains(*action.receive));
    record_.lent += by != own_ ? 1 : 0;
    record_.done.insert(action.action);
    if (record_.fails == action.action) {
      throw Error("a test failed it", "");
    }
    if (action.send) {
      record_.sent.insert(receive_of(*action.send));
    }
  }

  bool has_received(const SharedAction& action) const override {
    const std::lock_guard lock(record_.mutex);
    return record_.sent.contains(*action.receive);
  }

  [[noreturn]] void fail_timed_out(const SharedAction& action,
                                   Seconds /*patience*/) const override {
    throw Error("late: " + to_text(*action.receive), "");
  }

 private:
  Record& record_;
  Rank own_;
};

// Holds its own rank in the first action until another does one of its row.
class HeldWorker : public TestWorker {
 public:
  HeldWorker(Record& record, Rank own, std::atomic<bool>& lent)
      : TestWorker(record, own), own_(own), lent_(lent) {}

  void act(const SharedAction& action, Rank by) override {
    TestWorker::act(action, by);
    if (by != own_) {
      lent_ = true;
      lent_.notify_all();
    } else if (action.action == Action{Op::forward, {0}, {0}}) {
      lent_.wait(false);
    }
  }

 private:
  Rank own_;
  std::atomic<bool>& lent_;
};

// Goes on after its message until that has been taken, as one that updates.
class UpdatingWorker : public TestWorker {
 public:
  UpdatingWorker(Record& record, Lending& lending)
      : TestWorker(record, Rank{0}), record_(record), lending_(lending) {}

  void act(const SharedAction& action, Rank by) override {
    TestWorker::act(action, by);
    if (action.send) {
      lending_.note_message();
      const auto was_taken = [&] {
        const std::lock_guard lock(record_.mutex);
        return record_.taken.contains(receive_of(*action.send));
      };
      while (!was_taken()) {
        std::this_thread::yield();
      }
    }
  }

 private:
  Record& record_;
  Lending& lending_;
};

std::vector<SharedRow> rows_of(const Schedule& schedule) {
  return shared_rows(schedule,
                     std::vector<StageBytes>(schedule.stages),
                     std::vector<Bytes>(schedule.rows.size()));
}

// Of two ranks with a stage each.
std::vector<SharedRow> two_rows() {
  return rows_of(make_schedule("gpipe", {.ranks = 2, .microbatches = 1}));
}

// Runs every row with a thread of its own; the problems they ended with.
std::vector<std::string> run_all(const Schedule& schedule,
                                 Record& record,
                                 Lending& lending) {
  const std::vector<SharedRow> rows = rows_of(schedule);
  std::vector<std::string> problems(rows.size());
  std::vector<std::jthread> threads;
  for (Rank rank; rank.value < std::ssize(rows); ++rank.value) {
    threads.emplace_back([&, rank] {
      TestWorker worker(record, rank);
      try {
        lending.run(rank, 1, rows[rank.value], worker);
      } catch (const Error& error) {
        problems[rank.value] = error.problem();
      }
    });
  }
  threads.clear();  // joins
  return problems;
}

bool never() {
  return false;
}

TEST(Lending, does_everything_once) {
  for (const ScheduleKind& kind : kSchedules) {
    for (int time = 0; time < 20; ++time) {
      const Schedule schedule = make_schedule(
          kind.name,
          {.ranks = 4,
           .stages_per_rank =
               kind.stages_per_rank == kAnyNumber ? 3 : kind.stages_per_rank,
           .microbatches = 6});
      Record record;
      Lending lending(4, Seconds{60}, never);
      EXPECT_EQ(run_all(schedule, record, lending),
                std::vector<std::string>(4));
      std::multiset<Action> all;
      for (const Row& row : schedule.rows) {
        all.insert(row.begin(), row.end());
      }
      EXPECT_EQ(record.done, all) << kind.name;
    }
  }
}

// Rank 1 waits for its first message until rank 0 has done its second action,
// which rank 0 cannot while it is held in its first: so rank 1 does it.
TEST(Lending, a_rank_that_would_wait_does_what_another_has_no_time_for) {
  const Schedule schedule = parse_schedule(
      "rank 0: 0F0 1F0 0F1 1F1\n"
      "rank 1: 2F0 2F1\n");
  std::vector<SharedRow> rows = rows_of(schedule);
  rows[0].actions[1].needs.clear();  // so that it may begin
  Record record;
  std::atomic<bool> lent = false;
  Lending lending(2, Seconds{60}, never);
  {
    const std::jthread other([&] {
      HeldWorker worker(record, Rank{1}, lent);
      lending.run({1}, 1, rows[1], worker);
    });
    HeldWorker worker(record, Rank{0}, lent);
    lending.run({0}, 1, rows[0], worker);
  }
  EXPECT_EQ(record.done.size(), 6u);
  EXPECT_GE(record.lent, 1);
}

// The second rank has ended its row, and does what the first has no time for.
TEST(Lending, a_rank_that_has_nothing_left_can_help) {
  SharedRow row;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    row.actions.push_back({.action = {Op::forward, {microbatch}, {0}}});
  }
  const SharedRow nothing;
  Record record;
  std::atomic<bool> lent = false;
  Lending lending(2, Seconds{60}, never);
  {
    const std::jthread other([&] {
      TestWorker worker(record, Rank{1});
      lending.run({1}, 1, nothing, worker);
      lending.help({1}, 1);
    });
    HeldWorker worker(record, Rank{0}, lent);
    lending.run({0}, 1, row, worker);
    lending.help({0}, 1);  // nothing is left
  }
  EXPECT_EQ(record.lent, 1);
}

TEST(Lending, a_message_is_taken_while_who_sent_it_goes_on) {
  const std::vector<SharedRow> rows = two_rows();
  Record record;
  Lending lending(2, Seconds{60}, never);
  {
    const std::jthread other([&] {
      TestWorker worker(record, Rank{1});
      lending.run({1}, 1, rows[1], worker);
    });
    UpdatingWorker worker(record, lending);
    lending.run({0}, 1, rows[0], worker);
  }
  EXPECT_EQ(record.done.size(), 4u);
}

TEST(Lending, all_learn_of_the_first_failure) {
  const Schedule schedule =
      make_schedule("1f1b", {.ranks = 4, .microbatches = 6});
  for (int time = 0; time < 20; ++time) {
    Record record;
    record.fails = Action{Op::forward, {5}, {3}};  // nobody ends before it
    Lending lending(4, Seconds{60}, never);
    EXPECT_EQ(run_all(schedule, record, lending),
              std::vector<std::string>(4, "a test failed it"));
  }
}

TEST(Lending, a_message_that_never_comes_is_told) {
  const std::vector<SharedRow> rows = two_rows();
  Record record;
  Lending lending(2, Seconds{0.01}, never);
  TestWorker worker(record, Rank{1});
  try {
    lending.run({1}, 1, rows[1], worker);
    FAIL() << "it ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "late: RF0");
  }
}

TEST(Lending, ends_where_a_rank_fails_elsewhere) {
  const std::vector<SharedRow> rows = two_rows();
  Record record;
  std::atomic<int> asked = 0;
  Lending lending(2, Seconds{60}, [&] { return ++asked > 2; });
  TestWorker worker(record, Rank{1});
  EXPECT_THROW(lending.run({1}, 1, rows[1], worker), Error);
}

}  // namespace
}  // namespace cleave
