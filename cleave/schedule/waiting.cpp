#include "cleave/schedule/waiting.h"

#include <algorithm>
#include <map>

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

}  // namespace

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
    const auto [op, microbatch, stage] = action;
    const int to = stage.value + (op == Op::forward ? 1 : -1);
    const auto taken = spans.find({op, microbatch, {to}});
    const bool hands_on = op == Op::forward || op == Op::backward;
    if (!hands_on || taken == spans.end()) {
      continue;
    }
    const StageBytes& bytes = stages.at(stage.value);
    const bool forward = op == Op::forward;
    const Bytes size = forward ? bytes.leaving : bytes.returning;
    const Bytes shared = forward ? Bytes{} : bytes.shared;
    std::vector<Change>& of_rank = changes.at(order.place(action)->rank.value);
    of_rank.push_back({span.end, size + shared});
    of_rank.push_back({taken->second.start, Bytes{} - size});
    of_rank.push_back({taken->second.end, Bytes{} - shared});
  }
  std::vector<Bytes> most;
  most.reserve(changes.size());
  for (std::vector<Change>& of_rank : changes) {
    most.push_back(most_of(std::move(of_rank)));
  }
  return most;
}

}  // namespace cleave
