#include "cleave/schedule/turns.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cleave/schedule/order.h"

namespace cleave {
namespace {

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
    out.limit = limits.at(rank.value);
    RowNeeds row_needs(row, order);
    for (int place = 0; place < std::ssize(row); ++place) {
      const Action& action = row[place];
      std::vector<int> needs = row_needs.next(action, place);
      for (const Action& need : order.needs(action)) {
        const std::optional<Place> where = order.place(need);
        if (where && where->rank == rank) {
          needs.push_back(where->position);
        }
      }
      out.actions.push_back({action,
                             std::move(needs),
                             order.received_for(action),
                             order.sent_after(action),
                             uses[rank.value][place],
                             order.is_split(action.stage, action.microbatch),
                             row_needs.completes(action, place)});
    }
  }
  return shared;
}

void Turns::open(Rank rank, std::int64_t step, const SharedRow& row) {
  rows_.at(rank.value) = {.row = &row,
                          .step = step,
                          .ended = std::vector<bool>(row.actions.size())};
}

std::pair<std::int64_t, double> Turns::progress(const OpenRow& row) {
  return {row.step,
          static_cast<double>(row.next) /
              static_cast<double>(row.row->actions.size())};
}

bool Turns::can_begin(Rank who, Rank rank, const Arrived& arrived) const {
  const OpenRow& open = rows_[rank.value];
  if (open.row == nullptr || open.next == std::ssize(open.row->actions)) {
    return false;
  }
  const SharedAction& next = open.row->actions[open.next];
  const auto has_ended = [&](int place) { return open.ended[place]; };
  const bool fits =
      open.running == 0 ||
      open.kept + open.needed + next.memory.needed <= open.row->limit;
  return fits && std::ranges::all_of(next.needs, has_ended) &&
         (!next.receive || arrived({who, rank, open.step, open.next}));
}

Turn Turns::begin_next(Rank who, Rank rank) {
  busy_[who.value] = true;
  OpenRow& open = rows_[rank.value];
  open.needed += open.row->actions[open.next].memory.needed;
  ++open.running;
  most_[rank.value] = std::max(most_[rank.value], open.kept + open.needed);
  return {who, rank, open.step, open.next++};
}

std::optional<Turn> Turns::begin(Rank who, const Arrived& arrived) {
  if (can_begin(who, who, arrived)) {
    return begin_next(who, who);
  }
  std::optional<Rank> behind;
  for (Rank rank; rank.value < std::ssize(rows_); ++rank.value) {
    if (busy_[rank.value] && can_begin(who, rank, arrived) &&
        (!behind ||
         progress(rows_[rank.value]) < progress(rows_[behind->value]))) {
      behind = rank;
    }
  }
  return behind ? std::optional(begin_next(who, *behind)) : std::nullopt;
}

void Turns::end(const Turn& turn) {
  busy_[turn.who.value] = false;
  OpenRow& open = rows_[turn.row.value];
  const MemoryUse& memory = at(turn).memory;
  open.ended[turn.place] = true;
  --open.running;
  open.needed = open.needed - memory.needed;
  open.kept += memory.change;
  Bytes& most = most_[turn.row.value];
  most = std::max(most, open.kept + open.needed);
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
