#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cleave/schedule/passes.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/validate.h"
#include "tests/schedule/shapes.h"

// Damages good schedules in every place and compares the validator with a
// second opinion that shares no code with it.
namespace cleave {
namespace {

// Plays a schedule with its messages: one rule per op about what must be at
// hand.
class Play {
 public:
  explicit Play(const Schedule& schedule) : schedule_(schedule) {
    for (int rank = 0; const Row& row : schedule.rows) {
      for (const Action& action : row) {
        ranks_[action.stage] = rank;
      }
      ++rank;
    }
  }

  // Whether every rank gets to its end, everything is computed and no message
  // is left over.
  bool succeeds() {
    std::vector<std::size_t> next(schedule_.rows.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        const Row& row = schedule_.rows[rank];
        while (next[rank] < row.size() && step(row[next[rank]])) {
          ++next[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      broken_ = broken_ || next[rank] < schedule_.rows[rank].size();
    }
    const int all = schedule_.stages * schedule_.microbatches;
    const bool trains = backwards_ > 0;
    return !broken_ && mail_.empty() && forwards_ == all &&
           (!trains || backwards_ == all);
  }

 private:
  // False: it has to wait.
  bool step(const Action& action) {
    broken_ = broken_ || at_hand_.contains(action);
    if (is_compute(action.op)) {
      in_order(action);
      compute(action);
    } else if (!pass_message(action)) {
      return false;
    }
    at_hand_.insert(action);
    return true;
  }

  void compute(const Action& action) {
    const auto [op, m, stage] = action;
    const StageId previous{stage.value - 1};
    const StageId next{stage.value + 1};
    if (op == Op::weight) {
      need({Op::backward, m, stage});
    } else if (op == Op::forward) {
      if (stage.value > 0) {
        need(ranks_[previous] == ranks_[stage]
                 ? Action{Op::forward, m, previous}
                 : Action{Op::receive_forward, m, stage});
      }
      ++forwards_;
    } else {
      need({Op::forward, m, stage});
      if (next.value < schedule_.stages) {
        need(ranks_[next] == ranks_[stage]
                 ? Action{Op::backward, m, next}
                 : Action{Op::receive_backward, m, stage});
      }
      ++backwards_;
    }
  }

  // False: it is not there yet.
  bool pass_message(const Action& action) {
    const auto [op, m, stage] = action;
    switch (op) {
      case Op::send_forward:
        need({Op::forward, m, stage});
        mail_.insert({Op::receive_forward, m, StageId{stage.value + 1}});
        return true;
      case Op::send_backward:
        need({Op::backward, m, stage});
        mail_.insert({Op::receive_backward, m, StageId{stage.value - 1}});
        return true;
      default:
        return mail_.erase(action) > 0;
    }
  }

  // Compute of later microbatches must not have run, nor, where it sums the
  // gradients of the weights, whatever else sums them.
  void in_order(const Action& action) {
    const auto [op, m, stage] = action;
    const bool sums =
        op == Op::weight || (op == Op::backward && !splits(action));
    for (Microbatch later{m.value + 1}; later.value < schedule_.microbatches;
         ++later.value) {
      const Action whole{Op::backward, later, stage};
      const bool summed = at_hand_.contains({Op::weight, later, stage}) ||
                          (at_hand_.contains(whole) && !splits(whole));
      broken_ =
          broken_ || (sums && summed) || at_hand_.contains({op, later, stage});
    }
  }

  bool splits(const Action& backward) const {
    const Action weight{Op::weight, backward.microbatch, backward.stage};
    return std::ranges::any_of(schedule_.rows, [&](const Row& row) {
      return std::ranges::find(row, weight) != row.end();
    });
  }

  void need(const Action& action) {
    broken_ = broken_ || !at_hand_.contains(action);
  }

  const Schedule& schedule_;
  std::map<StageId, int> ranks_;
  std::set<Action> at_hand_;  // what has run
  std::set<Action> mail_;     // sent and not yet received, as its receive
  int forwards_ = 0;
  int backwards_ = 0;
  bool broken_ = false;
};

// Calls `test` with small schedules of every kind, complete and compute only.
template <typename Test>
void for_small_schedules(Test test) {
  for (const ScheduleKind& kind : kSchedules) {
    for (const auto& [ranks, microbatches] :
         {std::pair(1, 3), {2, 1}, {2, 3}, {3, 3}}) {
      const Schedule compute =
          kind.make(shapes_of(kind, ranks, microbatches).front());
      test(compute);
      test(with_messages(compute));
    }
  }
  test(with_messages(forward_only(in_turn(3), 3)));
  test(with_messages(
      parse_schedule("rank 0: 0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1\n"
                     "rank 1: 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1\n")));
  test(
      parse_schedule("rank 0: F0 F1 B0 W0 B1 W1\n"
                     "rank 1: F0 B0 F1 B1 W0 W1\n"));
}

bool has_messages(const Schedule& schedule) {
  for (const Row& row : schedule.rows) {
    for (const Action& action : row) {
      if (!is_compute(action.op)) {
        return true;
      }
    }
  }
  return false;
}

// The validator finds a problem exactly where the second opinion does.
void expect_same_opinion(const Schedule& schedule, bool complete) {
  const Schedule played = complete ? schedule : with_messages(schedule);
  EXPECT_EQ(problems(schedule).empty(), Play(played).succeeds())
      << to_text(schedule) << to_text(problems(schedule), schedule);
}

TEST(Damage, the_second_opinion_accepts_what_is_whole) {
  for_small_schedules([](const Schedule& good) {
    expect_same_opinion(good, has_messages(good));
    EXPECT_EQ(problems(good), std::vector<Problem>());
  });
}

TEST(Damage, a_removed_action_is_always_found) {
  for_small_schedules([](const Schedule& good) {
    for (int rank = 0; rank < std::ssize(good.rows); ++rank) {
      for (int i = 0; i < std::ssize(good.rows[rank]); ++i) {
        Schedule bad = good;
        bad.rows[rank].erase(bad.rows[rank].begin() + i);
        // Without W, a backward does all.
        EXPECT_EQ(
            problems(bad).empty(),
            good.rows[rank][i].op == Op::weight &&
                Play(has_messages(bad) ? bad : with_messages(bad)).succeeds())
            << to_text(bad);
      }
    }
  });
}

TEST(Damage, a_repeated_action_is_always_found_wherever_it_stands) {
  for_small_schedules([](const Schedule& good) {
    for (int rank = 0; rank < std::ssize(good.rows); ++rank) {
      for (const Action& action : good.rows[rank]) {
        for (int to = 0; to < std::ssize(good.rows); ++to) {
          for (int i = 0; i <= std::ssize(good.rows[to]); ++i) {
            Schedule bad = good;
            bad.rows[to].insert(bad.rows[to].begin() + i, action);
            EXPECT_FALSE(problems(bad).empty()) << to_text(bad);
          }
        }
      }
    }
  });
}

TEST(Damage, an_action_on_another_rank_is_always_found) {
  for_small_schedules([](const Schedule& good) {
    for (int rank = 0; rank < std::ssize(good.rows); ++rank) {
      for (int i = 0; i < std::ssize(good.rows[rank]); ++i) {
        for (int to = 0; to < std::ssize(good.rows); ++to) {
          // A stage of which nothing stays behind has moved as a whole.
          if (to == rank || good.rows[rank].size() == 1) {
            continue;
          }
          Schedule bad = good;
          bad.rows[to].push_back(bad.rows[rank][i]);
          bad.rows[rank].erase(bad.rows[rank].begin() + i);
          EXPECT_FALSE(problems(bad).empty()) << to_text(bad);
        }
      }
    }
  });
}

TEST(Damage, two_swapped_actions_are_found_exactly_where_they_do_harm) {
  int harmful = 0;
  int harmless = 0;
  for_small_schedules([&](const Schedule& good) {
    const bool complete = has_messages(good) || good.stages == 1;
    for (int rank = 0; rank < std::ssize(good.rows); ++rank) {
      const int size = static_cast<int>(good.rows[rank].size());
      for (int i = 0; i < size; ++i) {
        for (int j = i + 1; j < size; ++j) {
          Schedule swapped = good;
          std::swap(swapped.rows[rank][i], swapped.rows[rank][j]);
          expect_same_opinion(swapped, complete);
          ++(problems(swapped).empty() ? harmless : harmful);
        }
      }
    }
  });
  // The comparison says something only where both happen.
  EXPECT_GT(harmful, 100);
  EXPECT_GT(harmless, 100);
}

}  // namespace
}  // namespace cleave
