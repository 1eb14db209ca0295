#include "cleave/schedule/memory.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "cleave/schedule/complete.h"
#include "cleave/schedule/order.h"

namespace cleave {
namespace {

// Those that leave some gradients of weights to a W.
std::set<StageId> stages_with_weights(const Row& row) {
  std::set<StageId> stages;
  for (const Action& action : row) {
    if (action.op == Op::weight) {
      stages.insert(action.stage);
    }
  }
  return stages;
}

// A B without W where the stage has other Ws does both, one after the other.
// What it hands on is there by then.
Bytes needed_by_both(const StageBytes& bytes) {
  const Bytes after = bytes.kept_for_weights - bytes.kept + bytes.returning +
                      bytes.shared + bytes.weight_need;
  return std::max(bytes.backward_need, after) + bytes.sums;
}

// How far each rank must have come, at least: the place of the last action of
// its row that has surely ended.
using Progress = std::vector<int>;

// The memory of one rank: what it keeps, and what it made and others have
// perhaps not taken.
class RankMemory {
 public:
  // The next action of its row begins, for which all of `progress` has ended.
  void begin(const MemoryUse& use, const Progress& progress) {
    std::erase_if(in_flight_, [&](const auto& message) {
      const auto& [taker, bytes] = message;
      const bool taken = progress[taker.rank.value] >= taker.position;
      now_ = taken ? now_ - bytes : now_;
      return taken;
    });
    note(use.needed);
    now_ += use.change;
    note({});
  }

  void hand_on(const Place& taker, Bytes bytes) {
    in_flight_.emplace_back(taker, bytes);
    now_ += bytes;
    note({});
  }

  Bytes peak() const { return peak_; }

 private:
  void note(Bytes more) { peak_ = std::max(peak_, now_ + more); }

  std::vector<std::pair<Place, Bytes>> in_flight_;
  Bytes now_;
  Bytes peak_;
};

// Runs a schedule with any timing, and follows what must have ended before
// what.
class AnyTiming {
 public:
  AnyTiming(const Schedule& schedule, const std::vector<StageBytes>& stages)
      : schedule_(schedule),
        stages_(stages),
        order_(schedule),
        uses_(memory_uses(schedule, stages)),
        before_(schedule.rows.size()),
        ranks_(schedule.rows.size()) {}

  std::vector<Bytes> peaks() {
    order_.run([this](const Place& place) { visit(place); });
    std::vector<Bytes> peaks;
    for (const RankMemory& rank : ranks_) {
      peaks.push_back(rank.peak());
    }
    return peaks;
  }

 private:
  void visit(const Place& place) {
    const auto& [rank, position] = place;
    const Action& action = schedule_.rows[rank.value][position];
    RankMemory& memory = ranks_[rank.value];
    before_[rank.value].push_back(before(action, place));
    memory.begin(uses_[rank.value][position], before_[rank.value].back());
    for (const Action& taker : takers_of(action, schedule_.graph)) {
      if (const auto where = order_.place(taker)) {
        const HandedOn handed = handed_on_by(action, stages_);
        memory.hand_on(*where, handed.until_taken + handed.until_done);
      }
    }
  }

  Progress before(const Action& action, const Place& place) const {
    const auto& [rank, position] = place;
    Progress progress = position == 0 ? Progress(ranks_.size(), -1)
                                      : before_[rank.value][position - 1];
    progress[rank.value] = position - 1;
    for (const Place& need : order_.waits_for(action, rank)) {
      const Progress& others = before_[need.rank.value][need.position];
      for (std::size_t i = 0; i < progress.size(); ++i) {
        progress[i] = std::max(progress[i], others[i]);
      }
      int& of_need = progress[need.rank.value];
      of_need = std::max(of_need, need.position);
    }
    return progress;
  }

  const Schedule& schedule_;
  const std::vector<StageBytes>& stages_;
  Order order_;
  std::vector<std::vector<MemoryUse>> uses_;
  std::vector<std::vector<Progress>> before_;  // every action that has run
  std::vector<RankMemory> ranks_;
};

}  // namespace

std::vector<int> most_kept(const Schedule& schedule) {
  std::vector<int> most(schedule.stages(), 0);
  for (const Row& row : schedule.rows) {
    const std::set<StageId> with_weights = stages_with_weights(row);
    std::vector<int> now(schedule.stages(), 0);
    for (const Action& action : row) {
      const Op last =
          with_weights.contains(action.stage) ? Op::weight : Op::backward;
      int& count = now.at(action.stage.value);
      if (action.op == Op::forward) {
        ++count;
      } else if (action.op == last) {
        --count;
      }
      int& most_of_stage = most.at(action.stage.value);
      most_of_stage = std::max(most_of_stage, count);
    }
  }
  return most;
}

std::vector<std::vector<MemoryUse>> memory_uses(
    const Schedule& schedule, const std::vector<StageBytes>& stages) {
  const Order order(schedule);
  std::vector<std::vector<MemoryUse>> uses;
  for (const Row& row : schedule.rows) {
    std::vector<MemoryUse>& of_row = uses.emplace_back();
    const std::set<StageId> with_weights = stages_with_weights(row);
    for (const Action& action : row) {
      const StageBytes& bytes = stages.at(action.stage.value);
      const bool split = order.is_split(action.stage, action.index);
      MemoryUse use = traits(action.op).memory(bytes, split);
      if (action.op == Op::backward && !split &&
          with_weights.contains(action.stage)) {
        use.needed = needed_by_both(bytes);
      }
      of_row.push_back(use);
    }
  }
  return uses;
}

std::vector<Bytes> peak_bytes(const Schedule& schedule,
                              const std::vector<StageBytes>& stages) {
  const Schedule passes = passes_of(schedule);
  return AnyTiming(passes, stages).peaks();
}

HandedOn handed_on_by(const Action& action,
                      const std::vector<StageBytes>& stages) {
  return traits(action.op).hands_on(stages.at(action.stage.value));
}

std::vector<Action> takers_of(const Action& action, const StageGraph& graph) {
  std::vector<Action> takers;
  for (const StageId stage : traits(action.op).takers(graph, action.stage)) {
    takers.push_back({action.op, stage, action.index, action.step});
  }
  return takers;
}

}  // namespace cleave
