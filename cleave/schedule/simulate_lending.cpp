#include "cleave/schedule/simulate_lending.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <random>
#include <utility>

#include "cleave/counted.h"
#include "cleave/error.h"

namespace cleave {
namespace {

// What somebody did, or a message that arrived.
struct Event {
  Seconds time;
  std::int64_t number = 0;   // of those at the same time the first comes first
  std::optional<Rank> who;   // has nothing to do now; none: a message
  std::optional<Turn> turn;  // that ends

  bool operator>(const Event& other) const {
    return std::pair(time, number) > std::pair(other.time, other.number);
  }
};

// How much longer things take than planned.
class Delays {
 public:
  Delays(std::optional<Disturbance> disturbance, std::size_t ranks)
      : ranks_(ranks, 1.0), disturbance_(disturbance) {
    if (disturbance_) {
      random_.seed(disturbance_->number);
      for (double& rank : ranks_) {
        rank = about_one(disturbance_->of_ranks);
      }
    }
  }

  // Of the next action, if this rank does it.
  double factor(Rank who) {
    if (!disturbance_) {
      return 1.0;
    }
    const double held_up = uniform() < 0.01 ? disturbance_->held_up : 1.0;
    return ranks_[who.value] * about_one(disturbance_->of_actions) * held_up;
  }

 private:
  double uniform() {
    return static_cast<double>(random_()) /
           static_cast<double>(std::mt19937::max());
  }

  // Mostly closer to it than that.
  double about_one(double within) {
    return 1 + within * (uniform() + uniform() - 1);
  }

  std::mt19937 random_;
  std::vector<double> ranks_;
  std::optional<Disturbance> disturbance_;
};

// Ranks that share cores: each has as much of its own as others leave it.
class Cores {
 public:
  Cores(const std::vector<int>& cores, std::size_t ranks) : cores_(cores) {
    if (!cores.empty() && cores.size() != ranks) {
      fail("there are " + counted(std::ssize(cores), "core") + " for " +
               counted(static_cast<std::int64_t>(ranks), "rank"),
           "Give one per rank, or none.");
    }
  }

  // What share of the planned time it takes what this rank begins now.
  // REQUIRES: it is idle.
  double factor(Rank who, const std::vector<bool>& idle) const {
    if (cores_.empty() || cores_[who.value] < 0) {
      return 1;
    }
    int all = 0;
    int computing = 1;
    for (std::size_t rank = 0; rank < cores_.size(); ++rank) {
      const bool shares = cores_[rank] == cores_[who.value];
      all += shares ? 1 : 0;
      computing += shares && !idle[rank] ? 1 : 0;
    }
    return static_cast<double>(computing) / all;
  }

 private:
  const std::vector<int>& cores_;
};

constexpr int kLentSteps = 8;

struct Sizes {
  int stages = 0;
  int microbatches = 0;
};

Sizes sizes_of(const std::vector<SharedRow>& rows) {
  Sizes sizes;
  for (const SharedRow& row : rows) {
    for (const SharedAction& shared : row.actions) {
      const auto [op, microbatch, stage] = shared.action;
      sizes.stages = std::max(sizes.stages, stage.value + 1);
      sizes.microbatches = std::max(sizes.microbatches, microbatch.value + 1);
    }
  }
  return sizes;
}

// For ranks that do not lend: every action waits for the one before it, and
// memory for nobody.
std::vector<SharedRow> in_order(std::vector<SharedRow> rows) {
  for (SharedRow& row : rows) {
    row.bound = row.limit = {std::numeric_limits<std::int64_t>::max() / 2};
    for (int place = 1; place < std::ssize(row.actions); ++place) {
      row.actions[place].needs = {place - 1};
    }
  }
  return rows;
}

// Several steps of the same rows, one after the other.
class LendingRun {
 public:
  LendingRun(const std::vector<SharedRow>& rows,
             const ScheduleCosts& costs,
             std::int64_t steps,
             std::optional<Disturbance> disturbance = std::nullopt,
             bool lends = true)
      : rows_(rows),
        costs_(costs),
        lends_(lends),
        delays_(disturbance, rows.size()),
        cores_(costs.cores, rows.size()),
        turns_(static_cast<int>(rows.size())),
        open_(rows.size(), 0),
        idle_(rows.size(), true),
        ends_(steps),
        timeline_{std::vector<std::vector<Span>>(rows.size()),
                  Seconds{},
                  std::vector<Seconds>(rows.size())},
        sizes_(sizes_of(rows)),
        last_(sizes_.stages, Rank{-1}),
        arrivals_(steps,
                  std::vector<Seconds>(
                      std::size_t{2} * sizes_.stages * sizes_.microbatches,
                      Seconds{std::numeric_limits<double>::infinity()})) {}

  void run() {
    for (Rank rank; rank.value < std::ssize(rows_); ++rank.value) {
      turns_.open(rank, 0, rows_[rank.value]);
    }
    begin_all();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (event.who) {
        idle_[event.who->value] = true;
      }
      if (event.turn) {
        end(*event.turn);
      }
      begin_all();
    }
  }

  // When each step had ended on all ranks.
  const std::vector<Seconds>& ends() const { return ends_; }
  const Timeline& timeline() const { return timeline_; }
  std::vector<Bytes> most_needed() const {
    std::vector<Bytes> most;
    for (Rank rank; rank.value < std::ssize(rows_); ++rank.value) {
      most.push_back(turns_.most_needed(rank));
    }
    return most;
  }

 private:
  // Until nobody can begin anything: what one begins may be the first that
  // leaves something to another, who was asked before.
  void begin_all() {
    while (begin_some()) {
    }
  }

  // Asks every rank that is idle; whether any began something.
  bool begin_some() {
    bool began = false;
    bool helps = lends_;  // none so far found that there is nothing to do
    for (Rank who; who.value < std::ssize(rows_); ++who.value) {
      if (!idle_[who.value]) {
        continue;
      }
      const auto arrived = [this](const Turn& next) {
        return has_arrived(next);
      };
      const std::optional<Turn> turn = turns_.begin(who, arrived, helps);
      helps = lends_ && turn.has_value();
      if (turn) {
        began = true;
        begin(*turn);
      }
    }
    return began;
  }

  void begin(const Turn& turn) {
    const Rank who = turn.who;
    const SharedAction& shared = turns_.at(turn);
    const int stage = shared.action.stage.value;
    const double shared_core = cores_.factor(who, idle_);
    const double factor =
        shared_core * delays_.factor(who) * cost_of_moving(stage, who);
    const Seconds time =
        factor * time_of(shared.action.op, costs_.stages[stage], shared.split);
    const Seconds update = shared.completes && !costs_.updates.empty()
                               ? shared_core * costs_.updates[stage]
                               : Seconds{};
    std::vector<Span>& row = timeline_.rows[who.value];
    row.push_back({shared.action, now_, now_ + time});
    if (update.value > 0) {
      row.push_back({{Op::update, {}, shared.action.stage},
                     now_ + time,
                     now_ + time + update});
    }
    timeline_.busy[who.value] += time + update;
    if (shared.send) {  // before the update
      send(turn.step, *shared.send, now_ + time);
    }
    keep_busy(who, now_ + time + update, turn);
  }

  void keep_busy(Rank who, Seconds end, std::optional<Turn> turn) {
    idle_[who.value] = false;
    events_.push({end, ++events_so_far_, who, turn});
  }

  // By who has just ended the step's last row, where all others are busy.
  void do_between_steps(Rank ended) {
    if (costs_.between_steps.value <= 0) {
      return;
    }
    Rank who = ended;
    for (Rank other; other.value < std::ssize(idle_); ++other.value) {
      who = idle_[other.value] && who == ended ? other : who;
    }
    keep_busy(who, now_ + costs_.between_steps, {});
  }

  // Of the stage's next action, if this rank does it.
  double cost_of_moving(int stage, Rank who) {
    const Rank last = std::exchange(last_[stage], who);
    return last == who || last.value < 0 ? 1 : 1 + costs_.moving;
  }

  void end(const Turn& turn) {
    turns_.end(turn);
    if (!turns_.has_ended(turn.row)) {
      return;
    }
    ends_[turn.step] = std::max(ends_[turn.step], now_);
    timeline_.length = std::max(timeline_.length, now_);
    const std::int64_t next = ++open_[turn.row.value];
    if (next < std::ssize(ends_)) {
      turns_.open(turn.row, next, rows_[turn.row.value]);
    }
    if (std::ranges::min(open_) == next) {
      do_between_steps(turn.who);
    }
  }

  void send(std::int64_t step, const Action& action, Seconds time) {
    const auto [op, microbatch, stage] = action;
    if (op == Op::send_forward) {
      arrive(step,
             {Op::receive_forward, microbatch, {stage.value + 1}},
             time + costs_.forward_message[stage.value]);
    } else {
      arrive(step,
             {Op::receive_backward, microbatch, {stage.value - 1}},
             time + costs_.backward_message[stage.value - 1]);
    }
  }

  void arrive(std::int64_t step, const Action& receive, Seconds time) {
    arrivals_[step][place_of(receive)] = time;
    events_.push({time, ++events_so_far_, {}, {}});
  }

  bool has_arrived(const Turn& next) const {
    return arrivals_[next.step][place_of(*turns_.at(next).receive)] <= now_;
  }

  std::size_t place_of(const Action& receive) const {
    const int direction = receive.op == Op::receive_forward ? 0 : 1;
    return (receive.microbatch.value * sizes_.stages + receive.stage.value) *
               2 +
           direction;
  }

  const std::vector<SharedRow>& rows_;
  const ScheduleCosts& costs_;
  bool lends_;
  Delays delays_;
  Cores cores_;
  Turns turns_;
  std::vector<std::int64_t> open_;  // the step that each rank's row is of
  std::vector<bool> idle_;
  std::vector<Seconds> ends_;
  Timeline timeline_;
  Seconds now_;
  std::int64_t events_so_far_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Sizes sizes_;
  std::vector<Rank> last_;  // who did the last action of each stage
  std::vector<std::vector<Seconds>> arrivals_;  // of every step's messages
};

Seconds period_of(const LendingRun& run) {
  constexpr int kFirst = 2;  // the first ones find the pipeline empty
  return (run.ends().back() - run.ends()[kFirst - 1]) / (kLentSteps - kFirst);
}

}  // namespace

Timeline simulate_lending(const std::vector<SharedRow>& rows,
                          const ScheduleCosts& costs) {
  check_costs(costs, sizes_of(rows).stages);
  LendingRun run(rows, costs, 1);
  run.run();
  return run.timeline();
}

Timeline simulate_own(const std::vector<SharedRow>& rows,
                      const ScheduleCosts& costs) {
  check_costs(costs, sizes_of(rows).stages);
  const std::vector<SharedRow> own = in_order(rows);
  LendingRun run(own, costs, 1, std::nullopt, /*lends=*/false);
  run.run();
  return run.timeline();
}

LentSteps simulate_lent_steps(const std::vector<SharedRow>& rows,
                              const ScheduleCosts& costs,
                              std::optional<Disturbance> disturbance) {
  check_costs(costs, sizes_of(rows).stages);
  LendingRun run(rows, costs, kLentSteps, disturbance);
  run.run();
  return {period_of(run), run.most_needed()};
}

Seconds simulate_own_steps(const std::vector<SharedRow>& rows,
                           const ScheduleCosts& costs,
                           std::optional<Disturbance> disturbance) {
  check_costs(costs, sizes_of(rows).stages);
  const std::vector<SharedRow> own = in_order(rows);
  LendingRun run(own, costs, kLentSteps, disturbance, /*lends=*/false);
  run.run();
  return period_of(run);
}

std::int64_t actions_in_lent_steps(const std::vector<SharedRow>& rows) {
  std::int64_t actions = 0;
  for (const SharedRow& row : rows) {
    actions += std::ssize(row.actions);
  }
  return std::max<std::int64_t>(1, actions * kLentSteps);
}

}  // namespace cleave
