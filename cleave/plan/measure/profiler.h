#pragma once

#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/model/model.h"
#include "cleave/optimizer/training.h"
#include "cleave/plan/profile.h"

namespace cleave {

// Measures what every layer takes for this microbatch, in time and bytes. All
// devices of this machine measure at the same time, because training uses them
// so: they share caches, memory and power. Of devices that share a core only
// the first measures.
// Every layer runs as a stage of its own. An empty stage is timed too: its time
// is the overhead, and is subtracted from every layer. Times are medians on a
// device and means over the devices. Layers of the same kind and shapes count
// as equal, and only some of them are timed. The loss belongs to the last
// layer. The layers in memory at the same time are few: the whole model need
// not fit. REQUIRES: at least one device of this machine.
Profile profile(const Model& model,
                const Batch& microbatch,
                const Training& training,
                const Devices& devices);

}  // namespace cleave
