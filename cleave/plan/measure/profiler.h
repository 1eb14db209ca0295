#pragma once

#include <functional>
#include <vector>

#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/model/loss.h"
#include "cleave/model/model.h"
#include "cleave/model/precision.h"
#include "cleave/optimizer/optimizer.h"
#include "cleave/plan/plan.h"

namespace cleave {

struct ProfileOptions {
  Loss loss = cross_entropy;
  MakeUpdate make_update;  // empty: updates count as nothing
  Precision precision = Precision::fp32;
};

// Measures the layers on all devices of this machine at the same time, as
// training will use them: cores that share caches, memory or power slow each
// other. Of devices that share a core one measures. Layers of the same kind and
// shapes are timed as one; one of every kind, and as many more as a device
// would have, take turns in forward, backward, weights and update. Of two that
// run as one operation the second counts as it is alone, and the first what
// both take beside. The times are medians on a device and means over the
// devices, without what a stage takes for itself: that is the overhead. Also
// the bytes of parameters, of what backward and weights need, and of what
// crosses a cut behind the layer. The loss counts with the last layer. No more
// layers are in memory than fill the caches: the whole model never is.
// REQUIRES: at least one device, of this machine.
Profile profile(const Model& model,
                const Batch& microbatch,
                const ProfileOptions& options,
                const Devices& devices);

}  // namespace cleave
