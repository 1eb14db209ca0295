#pragma once

#include <functional>
#include <vector>

#include "cleave/comm/devices.h"
#include "cleave/data/dataset.h"
#include "cleave/model/loss.h"
#include "cleave/model/model.h"
#include "cleave/model/precision.h"
#include "cleave/plan/plan.h"

namespace cleave {

// Makes what updates these parameters by their gradients when it is called.
using MakeUpdate =
    std::function<std::function<void()>(const std::vector<at::Tensor>&)>;

struct ProfileOptions {
  Loss loss = cross_entropy;
  MakeUpdate make_update;  // empty: updates count as nothing
  Precision precision = Precision::fp32;
};

// Measures every layer on `device` with this microbatch: the times of F, B, W
// and of an update (medians), bytes of parameters, of what backward and weights
// need, and of what crosses a cut behind it. Layers of the same kind and shapes
// are timed once. The loss counts with the last layer. Layers are built one at
// a time: the whole model is never in memory.
Profile profile(const Model& model,
                const Batch& microbatch,
                const ProfileOptions& options,
                const Device& device);

// The same on all devices at the same time, as training will use them: cores
// that share caches, memory or power slow each other. Times are means over the
// devices. REQUIRES: at least one device.
Profile profile_together(const Model& model,
                         const Batch& microbatch,
                         const ProfileOptions& options,
                         const Devices& devices);

// Profiles the model with part of `sample` (at least one microbatch) and plans
// it over the devices.
Plan plan(const Model& model,
          const Devices& devices,
          const Batch& sample,
          const ProfileOptions& options,
          PlanRequest request);

// How the planner sees local devices.
std::vector<DeviceSpec> device_specs(const Devices& devices);

}  // namespace cleave
