#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/op.h"
#include "cleave/schedule/validate.h"
#include "tests/schedule/shapes.h"

// Damages good schedules in every place and compares the validator with a
// second opinion that shares no code with it.
namespace cleave {
namespace {

// Plays a complete schedule: one rule per op about what must be at hand.
class Play {
 public:
  explicit Play(const Schedule& schedule)
      : schedule_(schedule), all_(schedule.synchronisation) {
    for (int rank = 0; const Row& row : schedule.rows) {
      for (const Action& action : row) {
        ranks_[action.stage] = rank;
        trains_ = trains_ || action.op == Op::backward;
      }
      ++rank;
    }
  }

  // Whether every rank gets to its end, everything is computed and updated and
  // no message is left over.
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
    return !broken_ && mail_.empty() && has_done_all();
  }

 private:
  // False: it has to wait.
  bool step(const Action& action) {
    broken_ = broken_ || at_hand_.contains(action);
    if (is_pass(action.op)) {
      in_order(action);
      compute(action);
    } else if (action.op == Op::receive_norms) {
      if (!has_norms_of_others(action)) {
        return false;
      }
    } else if (is_agreement(action.op)) {
      agree(action);
    } else if (!pass_message(action)) {
      return false;
    }
    at_hand_.insert(action);
    ++counts_[action.op];
    return true;
  }

  void compute(const Action& action) {
    const auto [op, stage, m, step] = action;
    const StageId previous{stage.value - 1};
    const StageId next{stage.value + 1};
    if (op == Op::weight) {
      need({Op::backward, stage, m, {}});
    } else if (op == Op::forward) {
      if (stage.value > 0) {
        need(ranks_[previous] == ranks_[stage]
                 ? Action{Op::forward, previous, m, {}}
                 : Action{Op::receive_values, stage, m, {}});
      }
    } else {
      need({Op::forward, stage, m, {}});
      if (next.value < schedule_.stages()) {
        need(ranks_[next] == ranks_[stage]
                 ? Action{Op::backward, next, m, {}}
                 : Action{Op::receive_gradients, stage, m, {}});
      }
      if (is_tied(stage, &StageTie::earlier)) {
        need({Op::receive_tied_gradients, stage, m, {}});
      }
    }
  }

  // False: it is not there yet.
  bool pass_message(const Action& action) {
    const auto [op, stage, m, step] = action;
    switch (op) {
      case Op::send_values:
        need({Op::forward, stage, m, {}});
        return post(Op::receive_values, StageId{stage.value + 1}, m);
      case Op::send_gradients:
        need({Op::backward, stage, m, {}});
        return post(Op::receive_gradients, StageId{stage.value - 1}, m);
      case Op::send_tied_gradients:
        need({Op::backward, stage, m, {}});
        return post_to_tied(
            Op::receive_tied_gradients, stage, m, &StageTie::earlier);
      case Op::send_tied_weights:
        need({shards() ? Op::gather_weights : Op::update, stage, 0, {}});
        if (is_tied(stage, &StageTie::later)) {
          need({Op::receive_tied_weights, stage, 0, {}});
        }
        return post_to_tied(
            Op::receive_tied_weights, stage, 0, &StageTie::later);
      case Op::receive_tied_gradients:
        return collect(action, &StageTie::earlier);
      case Op::receive_tied_weights:
        need_gradients(stage);
        return collect(action, &StageTie::later);
      default:
        return mail_.erase({action, 0}) > 0;
    }
  }

  // ---- what a schedule has beside passes and messages ----

  static bool is_agreement(Op op) {
    return op == Op::reduce || op == Op::norm || op == Op::update ||
           op == Op::reduce_norm || op == Op::send_norms ||
           op == Op::gather_weights;
  }

  void agree(const Action& action) {
    const auto [op, stage, index, step] = action;
    if (op == Op::reduce) {
      each_microbatch_is_summed() ? need_gradients(stage, index)
                                  : need_gradients(stage);
    } else if (op == Op::norm || (op == Op::update && !all_.clips)) {
      need_gradients(stage);
      for (int i = 0; i < sums(stage); ++i) {
        need({Op::reduce, stage, i, {}});
      }
    } else if (op == Op::update) {
      for (const auto& [other, rank] : ranks_) {
        if (rank == ranks_[stage]) {
          need({shards() ? Op::reduce_norm : Op::norm, other, 0, {}});
        }
      }
      if (schedule_.rows.size() > 1) {
        need({Op::receive_norms, first_stage_beside(stage), 0, {}});
      }
    } else if (op == Op::gather_weights) {
      need({Op::update, stage, 0, {}});
    } else {
      const bool summed = op == Op::send_norms && shards();
      need({summed ? Op::reduce_norm : Op::norm, stage, 0, {}});
    }
  }

  bool has_norms_of_others(const Action& action) {
    broken_ = broken_ || action.stage != first_stage_beside(action.stage);
    return std::ranges::all_of(ranks_, [&](const auto& each) {
      const auto& [other, rank] = each;
      return rank == ranks_[action.stage] ||
             at_hand_.contains({Op::send_norms, other, 0, {}});
    });
  }

  void need_gradients(StageId stage) {
    for (int m = 0; m < schedule_.microbatches; ++m) {
      need_gradients(stage, m);
    }
  }

  void need_gradients(StageId stage, int m) {
    const Action backward{Op::backward, stage, m, {}};
    need(splits(backward) ? Action{Op::weight, stage, m, {}} : backward);
  }

  StageId first_stage_beside(StageId stage) {
    const int rank = ranks_[stage];
    return std::ranges::find_if(
               ranks_, [&](const auto& each) { return each.second == rank; })
        ->first;
  }

  bool mirrored() const { return !all_.buckets.empty(); }
  bool shards() const {
    return mirrored() && all_.shard_states != ShardStates::none;
  }
  bool each_microbatch_is_summed() const {
    return mirrored() && all_.shard_states == ShardStates::gradients;
  }
  int sums(StageId stage) const {
    return each_microbatch_is_summed() ? schedule_.microbatches
           : mirrored()                ? all_.buckets[stage.value]
                                       : 0;
  }

  bool is_tied(StageId stage, StageId StageTie::*end) const {
    return std::ranges::count(schedule_.graph.ties(), stage, end) > 0;
  }

  // How often each op must have run by then.
  bool has_done_all() const {
    const int stages = schedule_.stages();
    const int all = stages * schedule_.microbatches;
    std::map<Op, int> wanted{{Op::forward, all}};
    if (trains_) {
      const int ranks = static_cast<int>(schedule_.rows.size());
      const bool talk = all_.clips && ranks > 1;
      wanted[Op::backward] = all;
      wanted[Op::update] = stages;
      wanted[Op::norm] = all_.clips ? stages : 0;
      wanted[Op::reduce_norm] = all_.clips && shards() ? stages : 0;
      wanted[Op::send_norms] = talk ? stages : 0;
      wanted[Op::receive_norms] = talk ? ranks : 0;
      wanted[Op::gather_weights] = shards() ? stages : 0;
      for (StageId stage; stage.value < stages; ++stage.value) {
        wanted[Op::reduce] += sums(stage);
        const bool gives = is_tied(stage, &StageTie::later);
        wanted[Op::send_tied_gradients] += gives ? schedule_.microbatches : 0;
        wanted[Op::receive_tied_weights] += gives ? 1 : 0;
      }
    }
    return std::ranges::all_of(op_table(), [&](const OpTraits& kind) {
      const bool is_free = kind.op == Op::weight || kind.other_end.has_value();
      const auto found = counts_.find(kind.op);
      const int count = found == counts_.end() ? 0 : found->second;
      return (is_free && !wanted.contains(kind.op)) || count == wanted[kind.op];
    });
  }

  // ---- the mail: messages that are sent and not yet received ----

  bool post(Op receive, StageId to, int index, int copy = 0) {
    return mail_.insert({{receive, to, index, {}}, copy}).second;
  }

  // One to each stage at the other end of a tie.
  bool post_to_tied(Op receive,
                    StageId from,
                    int index,
                    StageId StageTie::*end) {
    const StageId StageTie::*const own =
        end == &StageTie::later ? &StageTie::earlier : &StageTie::later;
    int ties = 0;
    for (const StageTie& tie : schedule_.graph.ties()) {
      if (tie.*own == from) {
        post(receive, tie.*end, index, from.value);
        ++ties;
      }
    }
    broken_ = broken_ || ties == 0;
    return true;
  }

  // All that its ties bring, together; false: not yet.
  bool collect(const Action& action, StageId StageTie::*end) {
    const auto ties =
        std::ranges::count(schedule_.graph.ties(), action.stage, end);
    const auto is_for = [&](const auto& letter) {
      return letter.first == action;
    };
    if (ties == 0 || std::ranges::count_if(mail_, is_for) < ties) {
      return false;
    }
    std::erase_if(mail_, is_for);
    return true;
  }

  // Compute of later microbatches must not have run, nor, where it sums the
  // gradients of the weights, whatever else sums them.
  void in_order(const Action& action) {
    const auto [op, stage, m, step] = action;
    const bool sums_weights =
        op == Op::weight || (op == Op::backward && !splits(action));
    for (int later = m + 1; later < schedule_.microbatches; ++later) {
      const Action whole{Op::backward, stage, later, {}};
      const bool summed = at_hand_.contains({Op::weight, stage, later, {}}) ||
                          (at_hand_.contains(whole) && !splits(whole));
      broken_ = broken_ || (sums_weights && summed) ||
                at_hand_.contains({op, stage, later, {}});
    }
  }

  bool splits(const Action& backward) const {
    const Action weight{Op::weight, backward.stage, backward.index, {}};
    return std::ranges::any_of(schedule_.rows, [&](const Row& row) {
      return std::ranges::find(row, weight) != row.end();
    });
  }

  void need(const Action& action) {
    broken_ = broken_ || !at_hand_.contains(action);
  }

  const Schedule& schedule_;
  const Synchronisation& all_;
  std::map<StageId, int> ranks_;
  std::set<Action> at_hand_;               // what has run
  std::set<std::pair<Action, int>> mail_;  // as its receive, and who sent it
  std::map<Op, int> counts_;
  bool trains_ = false;
  bool broken_ = false;
};

bool is_complete(const Schedule& schedule) {
  return std::ranges::any_of(schedule.rows, [](const Row& row) {
    return std::ranges::any_of(
        row, [](const Action& action) { return !is_pass(action.op); });
  });
}

Schedule whole(const Schedule& schedule) {
  return is_complete(schedule) ? schedule : complete(schedule);
}

// Calls `test` with small schedules of every kind, complete and passes only,
// and with all that ranks may agree on.
template <typename Test>
void for_small_schedules(Test test) {
  for (const ScheduleKind& kind : kSchedules) {
    for (const auto& [ranks, microbatches] :
         {std::pair(1, 3), {2, 1}, {2, 3}, {3, 3}}) {
      const Schedule passes =
          kind.make(shapes_of(kind, ranks, microbatches).front());
      test(passes);
      test(complete(passes));
    }
  }
  test(complete(forward_only(in_turn(3), 3)));
  test(
      complete(parse_schedule("rank 0: 0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1\n"
                              "rank 1: 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1\n")));
  test(
      parse_schedule("rank 0: F0 F1 B0 W0 B1 W1\n"
                     "rank 1: F0 B0 F1 B1 W0 W1\n"));
  for (const std::string text : {"rank 0: F0 F1 B0 B1 W0 W1\n"
                                 "rank 1: F0 B0 F1 B1\n",
                                 "rank 0: 0F0 2F0 2B0 0B0\n"
                                 "rank 1: 1F0 1B0 1W0\n"}) {
    for_all_synchronisations(parse_schedule(text), [&](const Schedule& passes) {
      test(complete(passes));
    });
  }
}

// The validator finds a problem exactly where the second opinion does.
void expect_same_opinion(const Schedule& schedule) {
  EXPECT_EQ(problems(schedule).empty(), Play(whole(schedule)).succeeds())
      << to_text(schedule) << to_text(problems(schedule), schedule);
}

TEST(Damage, the_second_opinion_accepts_what_is_whole) {
  for_small_schedules([](const Schedule& good) {
    expect_same_opinion(good);
    EXPECT_EQ(problems(good), std::vector<Problem>());
  });
}

TEST(Damage, a_removed_action_is_always_found) {
  for_small_schedules([](const Schedule& good) {
    for (int rank = 0; rank < std::ssize(good.rows); ++rank) {
      for (int i = 0; i < std::ssize(good.rows[rank]); ++i) {
        Schedule bad = good;
        bad.rows[rank].erase(bad.rows[rank].begin() + i);
        // Without W, a backward does all. Without all that completes it, a
        // schedule has still to be completed.
        const bool may_go = good.rows[rank][i].op == Op::weight ||
                            is_complete(bad) != is_complete(good);
        EXPECT_EQ(problems(bad).empty(), may_go && Play(whole(bad)).succeeds())
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
    for (int rank = 0; rank < std::ssize(good.rows); ++rank) {
      const int size = static_cast<int>(good.rows[rank].size());
      for (int i = 0; i < size; ++i) {
        for (int j = i + 1; j < size; ++j) {
          Schedule swapped = good;
          std::swap(swapped.rows[rank][i], swapped.rows[rank][j]);
          expect_same_opinion(swapped);
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
