#pragma once

#include <cstdint>
#include <vector>

#include "cleave/data/dataset.h"

namespace cleave {

// Divides `samples` into at most `microbatches` parts, none empty, whose sizes
// differ by one at most; the larger ones come first.
std::vector<std::int64_t> microbatch_sizes(std::int64_t samples,
                                           int microbatches);

// The batch in that many parts, in order. Nothing is copied. Throws Error where
// inputs and targets are not as many.
std::vector<Batch> split_batch(const Batch& batch, int microbatches);

// What one replica has of a batch.
struct ReplicaShare {
  std::int64_t first = 0;  // of its samples
  std::int64_t count = 0;  // of them; may be none
  int first_microbatch = 0;
  int microbatches = 0;
};

// The microbatches of a whole batch, as above, divided among the replicas in
// their order; the first ones have one more where they cannot be equal.
std::vector<ReplicaShare> shares_of(std::int64_t samples,
                                    int replicas,
                                    int microbatches_each);

}  // namespace cleave
