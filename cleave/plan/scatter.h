#pragma once

#include <optional>
#include <vector>

#include "cleave/plan/basis.h"

namespace cleave {

// Gives every device any runs of layers, not one or two in a fixed pattern: a
// few large layers can then be shared out evenly where no cut of the chain is
// even. Starts from `start`, a plan for the same basis, and moves layers from
// device to device as long as the period gets shorter; always the same way for
// the same input. Nothing where there is nothing to move, or what it found does
// not fit. The schedule is "auto".
std::optional<Plan> scattered(const PlanBasis& basis,
                              const std::vector<DeviceSpec>& devices,
                              const Plan& start);

}  // namespace cleave
