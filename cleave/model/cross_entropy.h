#pragma once

#include <ATen/core/Tensor.h>

namespace cleave {

// Targets of this class do not count.
inline constexpr std::int64_t kIgnoredTarget = -100;

// The sum of the cross entropies of class scores [n, classes] against class
// numbers [n]. Works through blocks of rows that fit the cache, one exponential
// per score in forward and backward together. Scores that nobody else holds
// (a tensor that was moved in) are replaced by their gradient, so that there is
// never a second tensor of their size. Backward can run once.
at::Tensor cross_entropy_sum(at::Tensor scores, const at::Tensor& targets);

}  // namespace cleave
