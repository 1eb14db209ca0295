#include "cleave/schedule/memory.h"

#include <algorithm>
#include <set>

#include "cleave/schedule/order.h"

namespace cleave {
namespace {

bool makes_gradients(Op op, bool split) {
  return op == Op::weight || (op == Op::backward && !split);
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
    std::set<StageId> has_gradients;
    for (const auto& [op, microbatch, stage] : row) {
      MemoryUse& use = of_row.emplace_back();
      if (!is_compute(op)) {
        continue;
      }
      const StageBytes& bytes = stages.at(stage.value);
      const bool split = order.is_split(stage, microbatch);
      use = {needed_for(op, bytes, split), change_by(op, bytes, split)};
      if (makes_gradients(op, split) && has_gradients.insert(stage).second) {
        use.needed =
            (split ? bytes.first_weight_need : bytes.first_whole_need) +
            bytes.sums;
        use.change += bytes.gradients;
      }
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
