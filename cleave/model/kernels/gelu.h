#pragma once

#include <ATen/core/Tensor.h>

namespace cleave {

// torch::gelu(x, "tanh") for fp32 and bf16, several times as fast on a CPU, and
// equal to it but for rounding. Other tensors are left to torch::gelu.
at::Tensor tanh_gelu(const at::Tensor& x);

}  // namespace cleave
