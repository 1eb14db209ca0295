#include "cleave/plan/measure/device_specs.h"

#include <algorithm>

#include "cleave/counted.h"
#include "cleave/error.h"
#include "cleave/mesh.h"

namespace cleave {

std::vector<LayerTie> layer_ties(const Model& model) {
  std::vector<LayerTie> ties;
  for (const Tie& tie : model.ties()) {
    for (std::size_t i = 1; i < tie.uses.size(); ++i) {
      ties.push_back({tie.uses[i - 1].layer, tie.uses[i].layer});
    }
  }
  return ties;
}

bool are_processes(const Devices& devices) {
  return std::ranges::any_of(devices, &Device::process);
}

std::vector<DeviceSpec> device_specs(const Devices& devices) {
  check_budgets(devices);
  std::vector<DeviceSpec> specs;
  for (const Device& device : devices) {
    const bool shares = count_on_cores_of(device, devices) > 1;
    specs.push_back({.name = device.name,
                     .core = shares ? device.cores.front() : -1,
                     .memory = device.memory});
  }
  return specs;
}

void check_devices(const Plan& plan, const Devices& devices) {
  const std::int64_t needed = mesh_of(plan).ranks();
  const std::int64_t there = std::ssize(devices);
  if (there < needed) {
    fail("the plan uses " + counted(needed, "device") + ", but there " +
             (there == 1 ? "is " : "are ") + std::to_string(there),
         "Give it the devices the plan was made for.");
  }
}

}  // namespace cleave
