#include "cleave/schedule/order.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cleave {
namespace {

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
         static_cast<std::size_t>(action.index);
}

Order::Order(const Schedule& schedule)
    : schedule_(schedule), owners_(find_owners(schedule)) {
  for (int rank = 0; const Row& row : schedule.rows) {
    for (int position = 0; const Action& action : row) {
      places_.emplace(action, Place{Rank{rank}, position});
      is_complete_ = is_complete_ || !is_pass(action.op);
      has_backward_ =
          has_backward_ || action.op == Op::backward || action.op == Op::weight;
      ++position;
    }
    ++rank;
  }
  for (const Row& row : schedule.rows) {
    for (const Action& action : row) {
      if (adds_gradients(action.op, is_split(action.stage, action.index))) {
        completes_.insert_or_assign(action.stage.value, action);
      }
    }
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

std::vector<StageId> Order::stages_of(Rank rank) const {
  std::vector<StageId> stages;
  for (StageId stage; stage.value < schedule_.stages(); ++stage.value) {
    if (owner(stage) == rank) {
      stages.push_back(stage);
    }
  }
  return stages;
}

bool Order::is_split(StageId stage, int microbatch) const {
  return places_.contains({Op::weight, stage, microbatch});
}

bool Order::crosses(StageId from, StageId to) const {
  return owner(from) != owner(to);
}

std::vector<StageId> Order::crossing_sources(StageId stage) const {
  std::vector<StageId> sources = schedule_.graph.sources(stage);
  std::erase_if(sources,
                [&](StageId source) { return !crosses(source, stage); });
  return sources;
}

std::vector<StageId> Order::crossing_readers(StageId stage) const {
  std::vector<StageId> readers = schedule_.graph.readers(stage);
  std::erase_if(readers,
                [&](StageId reader) { return !crosses(stage, reader); });
  return readers;
}

std::optional<Action> Order::completes(StageId stage) const {
  const auto found = completes_.find(stage.value);
  return found == completes_.end() ? std::nullopt
                                   : std::optional(found->second);
}

std::vector<Action> Order::needs(const Action& action) const {
  return traits(action.op).needs(*this, action);
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
