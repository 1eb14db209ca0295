#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cleave {

// The numbers 0 … size-1 in the order an epoch visits them: ascending, or
// shuffled in a way that depends on the seed and the epoch alone, on any
// machine. Throws Error for a negative size or epoch.
std::vector<std::int64_t> epoch_order(std::int64_t size,
                                      std::uint64_t seed,
                                      std::int64_t epoch,
                                      bool shuffle);

struct OrderOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  // leave out a last batch that is not full
};

// One epoch cut into batches. Never changes once it is made; threads may share
// it.
class BatchOrder {
 public:
  // Throws Error when there are no samples, when `batch` is not positive, or
  // when drop_last would leave no batch.
  BatchOrder(std::int64_t size,
             std::int64_t batch,
             std::int64_t epoch,
             const OrderOptions& options);

  std::int64_t steps() const { return steps_; }

  // The samples of one step; only the last step may have fewer than a batch.
  // Valid as long as this object. REQUIRES: 0 <= step < steps().
  std::span<const std::int64_t> indices(std::int64_t step) const;

 private:
  std::vector<std::int64_t> order_;
  std::int64_t batch_;
  std::int64_t steps_;
};

}  // namespace cleave
