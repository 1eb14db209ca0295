#include "cleave/plan/plan.h"

#include <algorithm>
#include <utility>

#include "cleave/plan/basis.h"
#include "cleave/plan/check_request.h"
#include "cleave/plan/fastest_plan.h"
#include "cleave/plan/picoseconds.h"
#include "cleave/plan/pipeline_plan.h"
#include "cleave/plan/plan_schedule.h"

namespace cleave {
namespace {

// The most that one rank has, in bytes.
Bytes most_parameters(const Plan& plan) {
  std::vector<Bytes> by_rank(rank_count(plan));
  const std::vector<Rank> placement = placement_of(plan);
  for (std::size_t i = 0; i < placement.size(); ++i) {
    by_rank[placement[i].value] += plan.stages[i].parameters;
  }
  return std::ranges::max(by_rank);
}

// The time to add up the gradients of all replicas: every rank sends and
// receives all but its own section, twice.
Seconds time_of_sums(const Plan& plan, const PlanRequest& request) {
  const double share =
      2.0 * (plan.replicas - 1) / static_cast<double>(plan.replicas);
  return {share * static_cast<double>(most_parameters(plan).value) /
          request.sum_bandwidth};
}

// The plan for so many copies of a pipeline.
Plan mirrored_plan(const Profile& profile,
                   const std::vector<DeviceSpec>& devices,
                   const PlanRequest& request,
                   int replicas) {
  PlanRequest part = request;
  part.batch = (request.batch + replicas - 1) / replicas;
  part.replicas = replicas;
  Plan plan = pipeline_plan(profile, devices, part);
  plan.batch = request.batch;
  plan.replicas = replicas;
  plan.shard = replicas > 1 ? request.shard : Shard::none;
  plan.step = whole_picoseconds(plan.step + time_of_sums(plan, request));
  return plan;
}

MeshTried tried(const Plan& plan) {
  MeshTried mesh{.replicas = plan.replicas,
                 .devices = rank_count(plan),
                 .step = plan.step};
  for (const StagePlan& stage : plan.stages) {
    mesh.peak = std::max(mesh.peak, stage.peak);
  }
  return mesh;
}

// Numbers of replicas to compare.
std::vector<int> replicas_to_try(int devices, const PlanRequest& request) {
  if (request.replicas > 0) {
    return {request.replicas};
  }
  std::vector<int> counts;
  for (int count = 1; count <= devices; ++count) {
    if (devices % count == 0 && request.batch >= count) {
      counts.push_back(count);
    }
  }
  return counts;
}

}  // namespace

Plan make_plan(const Profile& profile,
               const std::vector<DeviceSpec>& devices,
               const PlanRequest& request) {
  check_request(profile, devices, request);
  const auto count = static_cast<int>(devices.size());
  std::vector<MeshTried> compared;
  Plan best = fastest_plan(
      replicas_to_try(count, request), kWorthADevice, [&](int replicas) {
        compared.push_back({.replicas = replicas, .devices = count / replicas});
        Plan plan = mirrored_plan(profile, devices, request, replicas);
        compared.back() = tried(plan);
        return plan;
      });
  if (compared.size() > 1) {
    best.compared = std::move(compared);
  }
  return best;
}

}  // namespace cleave
