#pragma once

#include "cleave/comm/world.h"
#include "cleave/device/device.h"
#include "cleave/mesh.h"
#include "cleave/plan/plan.h"

namespace cleave {

// Throws Error where the mesh has more ranks than there are devices, or ranks
// of the world.
void check_ranks(const Mesh& mesh, const Devices& devices, const World& world);

// The device that the plan names for the rank's place in its first replica;
// where the plan was made for other devices, the one in that place. Further
// replicas take the devices behind. REQUIRES: check_ranks().
const Device& device_of(const Plan& plan,
                        const Mesh& mesh,
                        Rank rank,
                        const Devices& devices);

}  // namespace cleave
