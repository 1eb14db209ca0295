#pragma once

#include <cstdint>

#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/units.h"

namespace cleave {

// What who calls the trainer takes of these devices' time for every step:
// gathering the samples of a batch, as a large dataset in memory does, which is
// measured, and telling the devices and the log. Zero where the devices leave
// it a core.
Seconds time_of_caller(const Batch& sample,
                       std::int64_t batch,
                       const Devices& devices);

}  // namespace cleave
