#include "cleave/schedule/waiting.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "cleave/schedule/order.h"

namespace cleave {
namespace {

// By how much what waits changes at some time.
struct Change {
  Seconds time;
  Bytes by;

  // What is taken at a time no longer waits with what is made at that time.
  bool operator<(const Change& other) const {
    return time < other.time || (time == other.time && by < other.by);
  }
};

Bytes most_of(std::vector<Change> changes) {
  std::ranges::sort(changes, std::less<>());
  Bytes now;
  Bytes most;
  for (const Change& change : changes) {
    now += change.by;
    most = std::max(most, now);
  }
  return most;
}

// Who takes what the action hands on; none: nobody.
std::optional<Action> taker_of(const Action& action) {
  const auto [op, microbatch, stage] = action;
  if (op != Op::forward && op != Op::backward) {
    return std::nullopt;
  }
  const int to = stage.value + (op == Op::forward ? 1 : -1);
  return Action{op, microbatch, {to}};
}

// What an action hands on.
struct Handed {
  Bytes taken;   // when who takes it begins
  Bytes shared;  // and when that has ended

  static Handed by(const Action& action,
                   const std::vector<StageBytes>& stages) {
    const StageBytes& bytes = stages.at(action.stage.value);
    return action.op == Op::forward ? Handed{bytes.leaving, {}}
                                    : Handed{bytes.returning, bytes.shared};
  }
};

// How far each rank must have come, at least: the place of the last action of
// its row that has surely ended.
using Progress = std::vector<int>;

// The memory of one rank: what it keeps, and what it made and others have
// perhaps not taken.
class RankMemory {
 public:
  // The next action of its row begins, for which all that must have ended.
  void begin(const MemoryUse& use, const Progress& progress) {
    std::erase_if(waiting_, [&](const auto& hand) {
      const auto& [taker, bytes] = hand;
      const bool taken = progress[taker.rank.value] >= taker.position;
      now_ = taken ? now_ - bytes : now_;
      return taken;
    });
    note(use.needed);
    now_ += use.change;
    note({});
  }

  void hand_on(const Place& taker, Bytes bytes) {
    waiting_.emplace_back(taker, bytes);
    now_ += bytes;
    note({});
  }

  Bytes most() const { return most_; }

 private:
  void note(Bytes more) { most_ = std::max(most_, now_ + more); }

  std::vector<std::pair<Place, Bytes>> waiting_;
  Bytes now_;
  Bytes most_;
};

// Runs a schedule in any time, and follows what must have ended before what.
class InAnyTime {
 public:
  InAnyTime(const Schedule& schedule, const std::vector<StageBytes>& stages)
      : schedule_(schedule),
        stages_(stages),
        order_(schedule),
        uses_(memory_uses(schedule, stages)),
        before_(schedule.rows.size()),
        ranks_(schedule.rows.size()) {}

  std::vector<Bytes> most() {
    order_.run([this](const Place& place) { visit(place); });
    std::vector<Bytes> most;
    for (const RankMemory& rank : ranks_) {
      most.push_back(rank.most());
    }
    return most;
  }

 private:
  void visit(const Place& place) {
    const auto& [rank, position] = place;
    const Action& action = schedule_.rows[rank.value][position];
    RankMemory& memory = ranks_[rank.value];
    before_[rank.value].push_back(before(action, place));
    memory.begin(uses_[rank.value][position], before_[rank.value].back());
    const std::optional<Action> taker = taker_of(action);
    if (const auto where = taker ? order_.place(*taker) : std::nullopt) {
      const Handed handed = Handed::by(action, stages_);
      memory.hand_on(*where, handed.taken + handed.shared);
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

std::vector<Bytes> most_bytes_in_order(const Schedule& schedule,
                                       const std::vector<StageBytes>& stages) {
  return InAnyTime(schedule, stages).most();
}

std::vector<Bytes> waiting_bytes(const Schedule& schedule,
                                 const Timeline& timeline,
                                 const std::vector<StageBytes>& stages) {
  const Order order(schedule);
  std::map<Action, Span> spans;
  for (const std::vector<Span>& row : timeline.rows) {
    for (const Span& span : row) {
      spans.emplace(span.action, span);
    }
  }
  std::vector<std::vector<Change>> changes(schedule.rows.size());
  for (const auto& [action, span] : spans) {
    const std::optional<Action> taker = taker_of(action);
    const auto taken = taker ? spans.find(*taker) : spans.end();
    if (taken == spans.end()) {
      continue;
    }
    const Handed handed = Handed::by(action, stages);
    std::vector<Change>& of_rank = changes.at(order.place(action)->rank.value);
    of_rank.push_back({span.end, handed.taken + handed.shared});
    of_rank.push_back({taken->second.start, Bytes{} - handed.taken});
    of_rank.push_back({taken->second.end, Bytes{} - handed.shared});
  }
  std::vector<Bytes> most;
  most.reserve(changes.size());
  for (std::vector<Change>& of_rank : changes) {
    most.push_back(most_of(std::move(of_rank)));
  }
  return most;
}

}  // namespace cleave
