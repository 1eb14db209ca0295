#include "cleave/data/order.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string>
#include <utility>

#include "cleave/data/splitmix64.h"
#include "cleave/error.h"

namespace cleave {

std::vector<std::int64_t> epoch_order(std::int64_t size,
                                      std::uint64_t seed,
                                      std::int64_t epoch,
                                      bool shuffle) {
  if (size < 0 || epoch < 0) {
    fail("epoch " + std::to_string(epoch) + " of " + std::to_string(size) +
             " samples has no order",
         "Count samples and epochs from 0.");
  }
  std::vector<std::int64_t> order(size);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (shuffle) {
    SplitMix64 draws(derived_seed(seed, static_cast<std::uint64_t>(epoch)));
    for (std::size_t left = order.size(); left > 1; --left) {  // Fisher-Yates
      std::swap(order[left - 1], order[draws.below(left)]);
    }
  }
  return order;
}

BatchOrder::BatchOrder(std::int64_t size,
                       std::int64_t batch,
                       std::int64_t epoch,
                       const OrderOptions& options)
    : order_(epoch_order(size, options.seed, epoch, options.shuffle)),
      batch_(batch),
      steps_(0) {
  if (size == 0 || batch < 1) {
    fail("cannot cut " + std::to_string(size) + " samples into batches of " +
             std::to_string(batch),
         "Give at least one sample and a batch of at least one.");
  }
  const bool partial = size % batch != 0 && !options.drop_last;
  steps_ = size / batch + (partial ? 1 : 0);
  if (steps_ == 0) {
    fail("no full batch of " + std::to_string(batch) + " in " +
             std::to_string(size) + " samples",
         "Make the batch smaller, or keep the last batch.");
  }
}

std::span<const std::int64_t> BatchOrder::indices(std::int64_t step) const {
  assert(step >= 0 && step < steps_);
  const std::span<const std::int64_t> all = order_;
  const std::int64_t first = step * batch_;
  const std::int64_t left = static_cast<std::int64_t>(all.size()) - first;
  return all.subspan(first, std::min(batch_, left));
}

}  // namespace cleave
