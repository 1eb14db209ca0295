#include "cleave/train/rank_device.h"

#include <algorithm>

#include "cleave/error.h"
#include "cleave/plan/plan_schedule.h"

namespace cleave {
namespace {

// The device of a place in the first replica.
const Device& device_of_place(const Plan& plan,
                              int place,
                              const Devices& devices) {
  const auto is_known = [&](const StagePlan& stage) {
    return std::ranges::find(devices, stage.device, &Device::name) !=
           devices.end();
  };
  if (!std::ranges::all_of(plan.stages, is_known)) {
    return devices[place];
  }
  const std::vector<Rank> placement = placement_of(plan);
  const auto stage =
      std::ranges::find(placement, Rank{place}) - placement.begin();
  return *std::ranges::find(devices, plan.stages[stage].device, &Device::name);
}

}  // namespace

void check_ranks(const Mesh& mesh, const Devices& devices, const World& world) {
  const std::string needs =
      "the plan uses " + std::to_string(mesh.ranks()) + " devices, but there ";
  if (std::ssize(devices) < mesh.ranks()) {
    fail(needs + "are " + std::to_string(devices.size()),
         "Give it the devices the plan was made for.");
  }
  if (world.ranks() < mesh.ranks()) {
    fail(needs + "are " + std::to_string(world.ranks()) + " ranks",
         "Start as many ranks as the plan has devices.");
  }
}

const Device& device_of(const Plan& plan,
                        const Mesh& mesh,
                        Rank rank,
                        const Devices& devices) {
  const Device& first =
      device_of_place(plan, mesh.place_of(rank).value, devices);
  const auto behind = mesh.replica_of(rank) * mesh.places;
  return mesh.replicas == 1 ? first
                            : devices[(&first - devices.data() + behind) %
                                      std::ssize(devices)];
}

}  // namespace cleave
