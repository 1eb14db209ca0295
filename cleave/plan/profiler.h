#pragma once

#include "cleave/comm/devices.h"
#include "cleave/data/dataset.h"
#include "cleave/model/loss.h"
#include "cleave/model/model.h"
#include "cleave/plan/plan.h"

namespace cleave {

// Measures every layer on `device` with this microbatch: forward and backward
// time (medians), bytes of parameters, of what backward needs, and of what
// crosses a cut behind it. Layers of the same kind and shapes are timed once.
// The loss counts with the last layer. Layers are built one at a time: the
// whole model is never in memory.
Profile profile(const Model& model,
                const Batch& microbatch,
                const Loss& loss,
                const Device& device);

// The same on all devices at the same time, as training will use them: cores
// that share caches, memory or power slow each other. Times are means over the
// devices. REQUIRES: at least one device.
Profile profile_together(const Model& model,
                         const Batch& microbatch,
                         const Loss& loss,
                         const Devices& devices);

// Profiles the model with part of `sample` (at least one microbatch) and plans
// it over the devices.
Plan plan(const Model& model,
          const Devices& devices,
          const Batch& sample,
          const Loss& loss,
          PlanRequest request);

// How the planner sees local devices.
std::vector<DeviceSpec> device_specs(const Devices& devices);

}  // namespace cleave
