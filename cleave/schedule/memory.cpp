#include "cleave/schedule/memory.h"

#include <algorithm>
#include <set>

#include "cleave/schedule/order.h"

namespace cleave {
namespace {

bool makes_gradients(Op op, bool split) {
  return op == Op::weight || (op == Op::backward && !split);
}

// Those that leave some gradients of weights to a W.
std::set<StageId> stages_with_weights(const Row& row) {
  std::set<StageId> stages;
  for (const auto& [op, microbatch, stage] : row) {
    if (op == Op::weight) {
      stages.insert(stage);
    }
  }
  return stages;
}

// With what the first to make gradients needs.
StageBytes as_for_the_first(StageBytes bytes) {
  bytes.whole_need = bytes.first_whole_need;
  bytes.weight_need = bytes.first_weight_need;
  return bytes;
}

// A B without W where the stage has other Ws does both, one after the other.
// What it hands on is there by then.
Bytes needed_by_both(const StageBytes& bytes) {
  const Bytes after = bytes.kept_for_weights - bytes.kept + bytes.returning +
                      bytes.shared + bytes.weight_need;
  return std::max(bytes.backward_need, after) + bytes.sums;
}

}  // namespace

std::vector<int> peak_in_flight(const Schedule& schedule) {
  std::vector<int> now(schedule.stages, 0);
  std::vector<int> peak(schedule.stages, 0);
  for (const Row& row : schedule.rows) {
    for (const auto& [op, microbatch, stage] : row) {
      int& count = now.at(stage.value);
      count += op == Op::forward ? 1 : op == Op::backward ? -1 : 0;
      peak.at(stage.value) = std::max(peak.at(stage.value), count);
    }
  }
  return peak;
}

Bytes change_by(Op op, const StageBytes& bytes, bool split) {
  const Bytes later = split ? bytes.kept_for_weights : Bytes{};
  return op == Op::forward    ? bytes.kept
         : op == Op::backward ? later - bytes.kept
                              : Bytes{} - later;
}

Bytes needed_for(Op op, const StageBytes& bytes, bool split) {
  const Bytes needed = op == Op::forward  ? bytes.forward_need
                       : op == Op::weight ? bytes.weight_need
                       : split            ? bytes.backward_need
                                          : bytes.whole_need;
  return needed + (makes_gradients(op, split) ? bytes.sums : Bytes{});
}

std::vector<std::vector<MemoryUse>> memory_uses(
    const Schedule& schedule, const std::vector<StageBytes>& stages) {
  const Order order(schedule);
  std::vector<std::vector<MemoryUse>> uses;
  for (const Row& row : schedule.rows) {
    std::vector<MemoryUse>& of_row = uses.emplace_back();
    const std::set<StageId> with_weights = stages_with_weights(row);
    std::set<StageId> has_gradients;
    for (const auto& [op, microbatch, stage] : row) {
      MemoryUse& use = of_row.emplace_back();
      if (!is_compute(op)) {
        continue;
      }
      const StageBytes& bytes = stages.at(stage.value);
      const bool split = order.is_split(stage, microbatch);
      const bool is_first =
          makes_gradients(op, split) && has_gradients.insert(stage).second;
      const StageBytes now = is_first ? as_for_the_first(bytes) : bytes;
      use = {needed_for(op, now, split), change_by(op, now, split)};
      if (op == Op::backward && !split && with_weights.contains(stage)) {
        use.needed = needed_by_both(now);
      }
      use.change += is_first ? bytes.gradients : Bytes{};
    }
  }
  return uses;
}

std::vector<Bytes> peak_bytes(const Schedule& schedule,
                              const std::vector<StageBytes>& stages) {
  std::vector<Bytes> peaks;
  for (const std::vector<MemoryUse>& row : memory_uses(schedule, stages)) {
    Bytes now;
    Bytes& peak = peaks.emplace_back();
    for (const MemoryUse& use : row) {
      peak = std::max({peak, now + use.needed, now + use.change});
      now += use.change;
    }
  }
  return peaks;
}

}  // namespace cleave
