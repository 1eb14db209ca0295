#pragma once

#include <ATen/core/Tensor.h>

namespace cleave {

// Attention in which every position sees itself and those before it, from
// queries, keys and values side by side, [n, length, 3 * heads * d], to what
// was attended, [n, length, heads * d]. For fp32 and bf16 on a CPU. Equal to
// torch's scaled_dot_product_attention but for rounding; keeps no table of
// length x length for backward.
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

}  // namespace cleave
