#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace cleave {

// input weightᵀ + bias, in the precision of the thread. Its backward can be
// split. REQUIRES: can_split() in split_operations.cpp says so.
at::Tensor split_linear(const at::Tensor& input,
                        const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias);

}  // namespace cleave
