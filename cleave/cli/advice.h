#pragma once

#include <string>

#include "cleave/cli/config/config.h"
#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/model/model.h"
#include "cleave/plan/plan.h"

namespace cleave {

// Lines that advise against what this machine is slow with: more devices than
// cores; and, from measurements, a precision, or several threads for small
// layers where the user did not set them. Empty where there is no advice.
std::string advice(const Config& config,
                   const Model& model,
                   const Dataset& data,
                   const Devices& devices,
                   const Plan& plan);

}  // namespace cleave
