#pragma once

#include "cleave/model/layer.h"

namespace cleave {

// Targets of this class do not count.
inline constexpr std::int64_t kIgnoredTarget = -100;

// The sum of the cross entropies of class scores [n, classes] or [n, length,
// classes] against class numbers. The scores may come in parts that lie side by
// side: the same bits as those of all in one. One exponential per score, in
// forward and backward together. Scores with no other handle (tensors that
// were moved in) are replaced by their gradient, so that there is never a
// second tensor of their size. Backward can run once. Throws Error where scores
// and targets do not go together.
at::Tensor cross_entropy_sum(Values scores, const at::Tensor& targets);

}  // namespace cleave
