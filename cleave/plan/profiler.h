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

// Measures every layer on all devices at the same time, as training will use
// them: cores that share caches, memory or power slow each other. The times of
// F, B, W and of an update are medians on a device and means over the devices;
// before each, other memory is read, as much as a device would use between two
// turns of a layer. Also the bytes of parameters, of what backward and weights
// need, and of what crosses a cut behind the layer. Layers of the same kind and
// shapes are timed once. The loss counts with the last layer. Layers are built
// one at a time: the whole model is never in memory. REQUIRES: at least one
// device.
Profile profile(const Model& model,
                const Batch& microbatch,
                const ProfileOptions& options,
                const Devices& devices);

}  // namespace cleave
