#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace cleave {

enum class Activation { none, relu };

// input weightᵀ + bias, then the activation, in the precision of the thread.
// Its backward can be split. REQUIRES: can_split(weight, bias).
at::Tensor split_linear(const at::Tensor& input,
                        const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias,
                        Activation activation = Activation::none);

}  // namespace cleave
