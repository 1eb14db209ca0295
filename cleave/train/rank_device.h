#pragma once

#include "cleave/comm/devices.h"
#include "cleave/comm/hub.h"
#include "cleave/plan/plan.h"
#include "cleave/train/mesh.h"

namespace cleave {

// Throws Error where the mesh has more ranks than there are devices, or ranks
// of the hub.
void check_ranks(const Mesh& mesh, const Devices& devices, const Hub& hub);

// The device that the plan names for the rank's place in its first replica;
// where the plan was made for other devices, the one in that place. Further
// replicas take the devices behind. REQUIRES: check_ranks().
const Device& device_of(const Plan& plan,
                        const Mesh& mesh,
                        Rank rank,
                        const Devices& devices);

}  // namespace cleave
