#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/memory.h"

namespace cleave {

// Every shape the schedule can have with so many ranks and microbatches; up to
// four stages per rank where it takes any number.
inline std::vector<ScheduleShape> shapes_of(const ScheduleKind& kind,
                                            int ranks,
                                            int microbatches) {
  if (kind.stages_per_rank != kAnyNumber) {
    return {{ranks, kind.stages_per_rank, microbatches}};
  }
  std::vector<ScheduleShape> shapes;
  for (int stages_per_rank = 1; stages_per_rank <= 4; ++stages_per_rank) {
    shapes.push_back({ranks, stages_per_rank, microbatches});
  }
  return shapes;
}

inline std::string to_text(const ScheduleKind& kind,
                           const ScheduleShape& shape) {
  return std::string(kind.name) + ", " + std::to_string(shape.ranks) +
         " ranks, " + std::to_string(shape.stages_per_rank) +
         " stages per rank, " + std::to_string(shape.microbatches) +
         " microbatches";
}

// Calls `test` with the schedule and all that its ranks may agree on.
template <typename Test>
void for_all_synchronisations(Schedule schedule, Test test) {
  const int stages = schedule.stages();
  std::vector<int> buckets;
  for (int stage = 0; stage < stages; ++stage) {
    buckets.push_back(1 + stage % 3);
  }
  const StageId last{stages - 1};
  std::vector<std::vector<StageTie>> all_ties{{}};
  if (stages > 1) {
    all_ties.push_back({{StageId{0}, last}});
  }
  if (stages > 2) {
    all_ties.push_back({{StageId{0}, StageId{1}}, {StageId{1}, last}});
  }
  for (const std::vector<StageTie>& ties : all_ties) {
    schedule.graph = StageGraph(stages, ties);
    for (const bool clips : {false, true}) {
      schedule.synchronisation = {{}, ShardStates::none, clips};
      test(schedule);
      for (const ShardStates shard : {ShardStates::none,
                                      ShardStates::optimizer,
                                      ShardStates::gradients}) {
        schedule.synchronisation = {buckets, shard, clips};
        test(schedule);
      }
    }
  }
}

// What every rank needs at most, without messages in flight.
inline std::vector<Bytes> row_peaks(const Schedule& schedule,
                                    const std::vector<StageBytes>& stages) {
  std::vector<Bytes> peaks;
  for (const std::vector<MemoryUse>& row : memory_uses(schedule, stages)) {
    Bytes now;
    Bytes peak;
    for (const MemoryUse& use : row) {
      peak = std::max({peak, now + use.needed, now + use.change});
      now += use.change;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

// Stage i on rank i.
inline std::vector<Rank> in_turn(int stages) {
  std::vector<Rank> ranks;
  for (int stage = 0; stage < stages; ++stage) {
    ranks.push_back({stage});
  }
  return ranks;
}

}  // namespace cleave
