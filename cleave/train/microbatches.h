#pragma once

#include <cstdint>
#include <vector>

#include "cleave/data/dataset.h"

namespace cleave {

// Divides `samples` into at most `microbatches` parts, none empty, whose sizes
// differ by one at most; the larger ones come first.
std::vector<std::int64_t> microbatch_sizes(std::int64_t samples,
                                           int microbatches);

// The batch in that many parts, in order. Nothing is copied.
std::vector<Batch> split_batch(const Batch& batch, int microbatches);

}  // namespace cleave
