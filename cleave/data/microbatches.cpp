#include "cleave/data/microbatches.h"

#include <algorithm>
#include <numeric>

#include "cleave/error.h"

namespace cleave {

std::vector<std::int64_t> microbatch_sizes(std::int64_t samples,
                                           int microbatches) {
  if (samples < 1 || microbatches < 1) {
    fail("cannot divide " + std::to_string(samples) + " samples into " +
             std::to_string(microbatches) + " microbatches",
         "Both must be at least 1.");
  }
  const std::int64_t parts = std::min<std::int64_t>(microbatches, samples);
  std::vector<std::int64_t> sizes(parts, samples / parts);
  std::fill_n(sizes.begin(), samples % parts, samples / parts + 1);
  return sizes;
}

std::vector<Batch> split_batch(const Batch& batch, int microbatches) {
  if (batch.inputs.size(0) != batch.targets.size(0)) {
    fail("a batch has " + std::to_string(batch.inputs.size(0)) +
             " inputs and " + std::to_string(batch.targets.size(0)) +
             " targets",
         "Every sample has one of each.");
  }
  std::vector<Batch> parts;
  std::int64_t start = 0;
  for (const std::int64_t size :
       microbatch_sizes(batch.inputs.size(0), microbatches)) {
    parts.push_back({batch.inputs.narrow(0, start, size),
                     batch.targets.narrow(0, start, size)});
    start += size;
  }
  return parts;
}

std::vector<ReplicaShare> shares_of(std::int64_t samples,
                                    int replicas,
                                    int microbatches_each) {
  const std::vector<std::int64_t> sizes =
      microbatch_sizes(samples, replicas * microbatches_each);
  const int each = static_cast<int>(sizes.size()) / replicas;
  const int more = static_cast<int>(sizes.size()) % replicas;
  std::vector<ReplicaShare> shares;
  ReplicaShare next;
  for (int replica = 0; replica < replicas; ++replica) {
    next.microbatches = each + (replica < more ? 1 : 0);
    next.count = std::accumulate(
        sizes.begin() + next.first_microbatch,
        sizes.begin() + next.first_microbatch + next.microbatches,
        std::int64_t{0});
    shares.push_back(next);
    next.first += next.count;
    next.first_microbatch += next.microbatches;
  }
  return shares;
}

}  // namespace cleave
