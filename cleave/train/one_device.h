#pragma once

#include <span>
#include <vector>

#include "cleave/train/rank_trainer.h"

namespace cleave {

struct OneDeviceRun {
  std::vector<double> losses;  // one per batch
  NamedTensors state;
};

// The reference of all exactness: the whole network on the calling thread, in
// the plain loop a user of libtorch would write. It uses nothing of the
// pipeline: no stages, no schedule, no messages.
OneDeviceRun train_on_one_device(const Model& model,
                                 std::span<const Batch> batches,
                                 int microbatches,
                                 const Training& training);

}  // namespace cleave
