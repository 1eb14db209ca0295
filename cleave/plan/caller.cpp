#include "cleave/plan/caller.h"

#include <torch/types.h>

#include <algorithm>
#include <memory>

#include "cleave/comm/clocks.h"
#include "cleave/comm/memory.h"

namespace cleave {
Seconds time_of_caller(const Batch& sample,
                       std::int64_t batch,
                       const Devices& devices) {
  constexpr Seconds kTelling{5e-5};
  constexpr int kTries = 5;
  if (!take_all_cores(devices)) {
    return {};
  }
  const AloneOnItsThread alone;
  const MemoryScope memory(std::make_shared<DeviceMemory>());
  const at::Tensor rows = at::arange(batch).remainder(sample.inputs.size(0));
  Seconds least{1e9};
  for (int i = 0; i < kTries; ++i) {
    const Seconds start = steady_now();
    const Batch gathered{sample.inputs.index_select(0, rows),
                         sample.targets.index_select(0, rows)};
    least = std::min(least, steady_now() - start);
  }
  return least + kTelling;
}

}  // namespace cleave
