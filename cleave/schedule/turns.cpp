#include "cleave/schedule/turns.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cleave/schedule/order.h"

namespace cleave {
namespace {

// How far the actions of a row may be begun before their time: looking further
// gains nothing.
constexpr int kAhead = 16;

// Finds what the actions of one row must wait for in it, beside what they
// compute with.
class RowNeeds {
 public:
  RowNeeds(const Row& row, const Order& order) {
    for (int place = 0; place < std::ssize(row); ++place) {
      const auto [op, microbatch, stage] = row[place];
      if (op == Op::backward || op == Op::weight) {
        last_gradient_[stage] = place;
      }
      if (op == Op::backward) {
        ++(order.is_split(stage, microbatch) ? split_ : whole_)[stage];
      }
    }
  }

  // To be called for every place, in order.
  std::vector<int> next(const Action& action, int place) {
    const auto [op, microbatch, stage] = action;
    std::vector<int> needs;
    // Some add to gradients in B and others in W: then all go in order.
    const bool mixed = split_[stage] > 0 && whole_[stage] > 0;
    for (const Op kind : {Op::forward, Op::backward, Op::weight}) {
      const bool adds = kind != Op::forward && op != Op::forward;
      const auto last = last_.find({stage, kind});
      if (last != last_.end() &&
          (kind == op || (adds && (mixed || completes(action, place))))) {
        needs.push_back(last->second);
      }
    }
    last_[{stage, op}] = place;
    return needs;
  }

  bool completes(const Action& action, int place) const {
    const auto last = last_gradient_.find(action.stage);
    return last != last_gradient_.end() && last->second == place;
  }

 private:
  std::map<StageId, int> last_gradient_;
  std::map<StageId, int> split_;  // backwards with a W
  std::map<StageId, int> whole_;  // those without
  std::map<std::pair<StageId, Op>, int> last_;
};

// Sets what the action takes of another's memory, and leaves in its own.
void add_handing_on(const Order& order,
                    const std::vector<StageBytes>& stages,
                    SharedAction& shared) {
  const auto [op, microbatch, stage] = shared.action;
  if (op == Op::weight) {
    return;
  }
  const bool forward = op == Op::forward;
  const StageId before{stage.value - (forward ? 1 : -1)};
  const StageId behind{stage.value + (forward ? 1 : -1)};
  if (const auto from = order.place({op, microbatch, before})) {
    const StageBytes& bytes = stages.at(before.value);
    shared.taken_from = from->rank;
    shared.taken = forward ? bytes.leaving : bytes.returning;
    shared.let_go = forward ? Bytes{} : bytes.shared;
  }
  if (order.place({op, microbatch, behind})) {
    const StageBytes& bytes = stages.at(stage.value);
    shared.leaves = forward ? bytes.leaving : bytes.returning + bytes.shared;
  }
}

// While it runs, above what the row keeps before.
Bytes needed_by(const SharedAction& action) {
  return std::max(action.memory.needed, action.memory.change + action.leaves);
}

}  // namespace

std::vector<SharedRow> shared_rows(const Schedule& schedule,
                                   const std::vector<StageBytes>& stages,
                                   const std::vector<Bytes>& limits) {
  const Order order(schedule);
  const std::vector<std::vector<MemoryUse>> uses =
      memory_uses(schedule, stages);
  std::vector<SharedRow> shared;
  for (Rank rank; rank.value < std::ssize(schedule.rows); ++rank.value) {
    const Row& row = schedule.rows[rank.value];
    SharedRow& out = shared.emplace_back();
    out.bound = out.limit = limits.at(rank.value);
    RowNeeds row_needs(row, order);
    Bytes kept;
    for (int place = 0; place < std::ssize(row); ++place) {
      const Action& action = row[place];
      std::vector<int> needs = row_needs.next(action, place);
      for (const Action& need : order.needs(action)) {
        const std::optional<Place> where = order.place(need);
        if (where && where->rank == rank) {
          needs.push_back(where->position);
        }
      }
      out.actions.push_back(
          {.action = action,
           .needs = std::move(needs),
           .receive = order.received_for(action),
           .send = order.sent_after(action),
           .memory = uses[rank.value][place],
           .kept_before = kept,
           .split = order.is_split(action.stage, action.microbatch),
           .completes = row_needs.completes(action, place)});
      add_handing_on(order, stages, out.actions.back());
      kept += uses[rank.value][place].change;
    }
  }
  return shared;
}

void Turns::open(Rank rank, std::int64_t step, const SharedRow& row) {
  rows_.at(rank.value) = {.row = &row,
                          .step = step,
                          .begun = std::vector<bool>(row.actions.size()),
                          .ended = std::vector<bool>(row.actions.size())};
}

std::pair<std::int64_t, double> Turns::progress(const OpenRow& row) {
  return {row.step,
          static_cast<double>(row.next) /
              static_cast<double>(row.row->actions.size())};
}

bool Turns::fits(const Turn& turn) const {
  const OpenRow& open = rows_[turn.row.value];
  const Bytes now = open.kept + open.needed + waiting_[turn.row.value];
  return now + needed_by(at(turn)) <= open.row->limit && leaves_room(turn);
}

// Whether nothing runs that could free memory, nor can begin, nor will: a rank
// without a row, or whose row of an earlier step has ended, is yet to come.
bool Turns::is_stuck(Rank who, const Arrived& arrived) const {
  if (std::ranges::find(busy_, true) != busy_.end()) {
    return false;
  }
  const std::int64_t step = rows_[who.value].step;
  for (Rank rank; rank.value < std::ssize(rows_); ++rank.value) {
    const OpenRow& other = rows_[rank.value];
    const bool comes =
        other.row == nullptr ||
        (other.step < step && other.next == std::ssize(other.row->actions));
    if (comes || find(rank, rank, kAhead, arrived)) {
      return false;
    }
  }
  return true;
}

// Whether an action before its time leaves room for those it overtakes: they
// come while what it leaves behind is kept.
bool Turns::leaves_room(const Turn& turn) const {
  const OpenRow& open = rows_[turn.row.value];
  const std::vector<SharedAction>& actions = open.row->actions;
  const Bytes waiting = waiting_[turn.row.value] + at(turn).leaves;
  Bytes early;  // what those leave behind that are further on
  for (int i = std::max(open.furthest, turn.place); i >= open.next; --i) {
    const SharedAction& action = actions[i];
    if (open.begun[i] || i == turn.place) {
      early += action.memory.change;
    } else if (i < turn.place) {
      const Bytes alone = action.kept_before + action.memory.needed;
      if (alone + early > open.row->bound ||
          (alone + waiting <= open.row->limit &&
           alone + waiting + early > open.row->limit)) {
        return false;
      }
    }
  }
  return true;
}

// As far as memory does not matter.
bool Turns::is_ready(const Turn& turn, const Arrived& arrived) const {
  const OpenRow& open = rows_[turn.row.value];
  const SharedAction& action = open.row->actions[turn.place];
  const auto has_ended = [&](int place) { return open.ended[place]; };
  return !open.begun[turn.place] &&
         std::ranges::all_of(action.needs, has_ended) &&
         (!action.receive || arrived(turn));
}

std::optional<Turn> Turns::find(Rank who,
                                Rank row,
                                int ahead,
                                const Arrived& arrived) const {
  const OpenRow& open = rows_[row.value];
  if (open.row == nullptr) {
    return std::nullopt;
  }
  const int end = std::min(open.next + (open.row->in_order ? 1 : ahead),
                           static_cast<int>(open.row->actions.size()));
  for (int place = open.next; place < end; ++place) {
    const Turn turn{who, row, open.step, place};
    if (is_ready(turn, arrived) && fits(turn)) {
      return turn;
    }
  }
  return std::nullopt;
}

std::optional<Turn> Turns::find_to_help(Rank who,
                                        int ahead,
                                        const Arrived& arrived) const {
  std::optional<Turn> best;
  for (Rank row; row.value < std::ssize(rows_); ++row.value) {
    const OpenRow& open = rows_[row.value];
    if (busy_[row.value] &&
        (!best || progress(open) < progress(rows_[best->row.value]))) {
      const std::optional<Turn> turn = find(who, row, ahead, arrived);
      best = turn ? turn : best;
    }
  }
  return best;
}

// Where nobody could do anything otherwise.
std::optional<Turn> Turns::find_over_limit(Rank who,
                                           const Arrived& arrived) const {
  const OpenRow& open = rows_[who.value];
  if (open.row == nullptr || open.next == std::ssize(open.row->actions)) {
    return std::nullopt;
  }
  const Turn turn{who, who, open.step, open.next};
  return is_ready(turn, arrived) && is_stuck(who, arrived) ? std::optional(turn)
                                                           : std::nullopt;
}

std::optional<Turn> Turns::begin(Rank who, const Arrived& arrived, bool helps) {
  std::optional<Turn> turn;
  for (const int ahead : {1, kAhead}) {
    turn = turn ? turn : find(who, who, ahead, arrived);
    turn = turn || !helps ? turn : find_to_help(who, ahead, arrived);
  }
  turn = turn ? turn : find_over_limit(who, arrived);
  if (turn) {
    note_begin(*turn);
  }
  return turn;
}

void Turns::note_begin(const Turn& turn) {
  busy_[turn.who.value] = true;
  OpenRow& open = rows_[turn.row.value];
  open.begun[turn.place] = true;
  open.furthest = std::max(open.furthest, turn.place);
  while (open.next < std::ssize(open.begun) && open.begun[open.next]) {
    ++open.next;
  }
  ++open.running;
  open.needed += needed_by(at(turn));
  Bytes& taken_from = waiting_[at(turn).taken_from.value];
  taken_from = taken_from - at(turn).taken;
  note_need(turn.row);
}

void Turns::end(const Turn& turn) {
  busy_[turn.who.value] = false;
  OpenRow& open = rows_[turn.row.value];
  const SharedAction& action = at(turn);
  open.ended[turn.place] = true;
  --open.running;
  open.needed = open.needed - needed_by(action);
  open.kept += action.memory.change;
  waiting_[turn.row.value] += action.leaves;
  Bytes& shared = waiting_[action.taken_from.value];
  shared = shared - action.let_go;
  note_need(turn.row);
}

void Turns::note_need(Rank rank) {
  const OpenRow& open = rows_[rank.value];
  Bytes& most = most_[rank.value];
  most = std::max(most, open.kept + open.needed + waiting_[rank.value]);
}

bool Turns::has_ended(Rank rank) const {
  const OpenRow& open = rows_.at(rank.value);
  return open.row == nullptr ||
         (open.running == 0 && open.next == std::ssize(open.row->actions));
}

bool Turns::have_all_ended(std::int64_t step) const {
  for (Rank rank; rank.value < std::ssize(rows_); ++rank.value) {
    const std::int64_t own = rows_[rank.value].step;
    if (own < step || (own == step && !has_ended(rank))) {
      return false;
    }
  }
  return true;
}

const SharedAction& Turns::next(Rank rank) const {
  const OpenRow& open = rows_.at(rank.value);
  return open.row->actions.at(open.next);
}

const SharedAction& Turns::at(const Turn& turn) const {
  return rows_[turn.row.value].row->actions[turn.place];
}

}  // namespace cleave
