#include "cleave/plan/plan.h"

#include <algorithm>
#include <utility>

#include "cleave/mesh.h"

namespace cleave {

Mesh mesh_of(const Plan& plan) {
  return {.replicas = plan.replicas,
          .places = static_cast<int>(plan.devices.size())};
}

std::vector<Rank> placement_of(const Plan& plan) {
  std::vector<Rank> ranks;
  for (const StagePlan& stage : plan.stages) {
    ranks.push_back(stage.rank);
  }
  return ranks;
}

std::vector<int> first_layers_of(const Plan& plan) {
  std::vector<int> first{0};
  for (const StagePlan& stage : plan.stages) {
    first.push_back(first.back() + static_cast<int>(stage.layers.size()));
  }
  return first;
}

Schedule schedule_frame(const Plan& plan,
                        std::vector<StageTie> ties,
                        ShardStates shard_states,
                        bool clips) {
  Schedule frame;
  frame.graph =
      StageGraph(static_cast<int>(plan.stages.size()), std::move(ties));
  frame.synchronisation.clips = clips;
  if (plan.replicas > 1) {
    frame.synchronisation.shard_states = shard_states;
    for (const StagePlan& stage : plan.stages) {
      frame.synchronisation.buckets.push_back(
          static_cast<int>(stage.buckets.size()));
    }
  }
  return frame;
}

std::vector<StageTie> stage_ties(const std::vector<int>& first_layers,
                                 const std::vector<LayerTie>& ties) {
  const auto stage_of = [&](int layer) {
    const auto behind = std::ranges::upper_bound(first_layers, layer);
    return StageId{static_cast<int>(behind - first_layers.begin()) - 1};
  };
  std::vector<StageTie> found;
  for (const LayerTie& tie : ties) {
    const StageTie between{stage_of(tie.earlier), stage_of(tie.later)};
    if (between.earlier != between.later &&
        std::ranges::find(found, between) == found.end()) {
      found.push_back(between);
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace cleave
