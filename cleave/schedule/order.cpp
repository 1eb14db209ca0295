#include "cleave/schedule/order.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cleave {
namespace {

bool is_of_the_way_back(Op op) {
  return op == Op::backward || op == Op::weight || op == Op::send_backward ||
         op == Op::receive_backward;
}

// For every stage, the rank with most of its actions.
std::unordered_map<int, Rank> find_owners(const Schedule& schedule) {
  std::map<std::pair<int, int>, int> counts;  // by stage and rank
  for (int rank = 0; const Row& row : schedule.rows) {
    for (const Action& action : row) {
      ++counts[{action.stage.value, rank}];
    }
    ++rank;
  }
  std::unordered_map<int, Rank> owners;
  std::unordered_map<int, int> most;
  for (const auto& [stage_and_rank, count] : counts) {
    const auto [stage, rank] = stage_and_rank;
    if (count > most[stage]) {
      most[stage] = count;
      owners[stage] = Rank{rank};
    }
  }
  return owners;
}

}  // namespace

std::size_t Order::ActionHash::operator()(const Action& action) const {
  // Consecutive numbers for neighbouring actions; the odd factors spread
  // stages and ops over the table.
  return static_cast<std::size_t>(action.op) * 0x9e3779b97f4a7c15U +
         static_cast<std::size_t>(action.stage.value) * 0x10000001bU +
         static_cast<std::size_t>(action.microbatch.value);
}

Order::Order(const Schedule& schedule)
    : schedule_(schedule), owners_(find_owners(schedule)) {
  for (int rank = 0; const Row& row : schedule.rows) {
    for (int position = 0; const Action& action : row) {
      places_.emplace(action, Place{Rank{rank}, position});
      has_messages_ = has_messages_ || !is_compute(action.op);
      has_backward_ = has_backward_ || is_of_the_way_back(action.op);
      ++position;
    }
    ++rank;
  }
}

std::optional<Place> Order::place(const Action& action) const {
  const auto found = places_.find(action);
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Rank> Order::owner(StageId stage) const {
  const auto found = owners_.find(stage.value);
  return found == owners_.end() ? std::nullopt : std::optional(found->second);
}

bool Order::is_split(StageId stage, Microbatch microbatch) const {
  return places_.contains({Op::weight, microbatch, stage});
}

bool Order::crosses(StageId stage) const {
  const bool inner = stage.value >= 0 && stage.value + 1 < schedule_.stages;
  return inner && owner(stage) != owner(StageId{stage.value + 1});
}

std::optional<Action> Order::received_for(const Action& action) const {
  const auto [op, microbatch, stage] = action;
  if (op == Op::forward && crosses(StageId{stage.value - 1})) {
    return Action{Op::receive_forward, microbatch, stage};
  }
  if (op == Op::backward && crosses(stage)) {
    return Action{Op::receive_backward, microbatch, stage};
  }
  return std::nullopt;
}

std::optional<Action> Order::sent_after(const Action& action) const {
  const auto [op, microbatch, stage] = action;
  if (op == Op::forward && crosses(stage)) {
    return Action{Op::send_forward, microbatch, stage};
  }
  if (op == Op::backward && crosses(StageId{stage.value - 1})) {
    return Action{Op::send_backward, microbatch, stage};
  }
  return std::nullopt;
}

std::vector<Action> Order::needs(const Action& action) const {
  const auto [op, microbatch, stage] = action;
  const StageId previous{stage.value - 1};
  const StageId next{stage.value + 1};
  const bool first = stage.value <= 0;
  const bool last = next.value >= schedule_.stages;
  const auto comes_by_message = [this](StageId before_cut) {
    return has_messages_ && crosses(before_cut);
  };
  const Action forward{Op::forward, microbatch, stage};
  const Action backward{Op::backward, microbatch, stage};
  switch (op) {
    case Op::forward:
      if (first) {
        return {};
      }
      return {comes_by_message(previous)
                  ? Action{Op::receive_forward, microbatch, stage}
                  : Action{Op::forward, microbatch, previous}};
    case Op::backward:
      if (last) {
        return {forward};
      }
      return {forward,
              comes_by_message(stage)
                  ? Action{Op::receive_backward, microbatch, stage}
                  : Action{Op::backward, microbatch, next}};
    case Op::send_forward:
      return {forward};
    case Op::weight:
    case Op::send_backward:
      return {backward};
    case Op::receive_forward:
      return {{Op::send_forward, microbatch, previous}};
    case Op::receive_backward:
      return {{Op::send_backward, microbatch, next}};
    case Op::update:
      return {};
  }
  return {};
}

std::vector<Place> Order::waits_for(const Action& action, Rank rank) const {
  std::vector<Place> elsewhere;
  for (const Action& need : needs(action)) {
    const std::optional<Place> where = place(need);
    if (where && where->rank != rank) {
      elsewhere.push_back(*where);
    }
  }
  return elsewhere;
}

std::vector<int> Order::run(const std::function<void(Place)>& visit) const {
  std::vector<int> reached(schedule_.rows.size(), 0);
  const auto can_run = [&](const Action& action, Rank rank) {
    return std::ranges::all_of(waits_for(action, rank), [&](Place need) {
      return need.position < reached[need.rank.value];
    });
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank rank; rank.value < std::ssize(reached); ++rank.value) {
      const Row& row = schedule_.rows[rank.value];
      int& position = reached[rank.value];
      while (position < std::ssize(row) && can_run(row[position], rank)) {
        visit({rank, position});
        ++position;
        moved = true;
      }
    }
  }
  return reached;
}

}  // namespace cleave
