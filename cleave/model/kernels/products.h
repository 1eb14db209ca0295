#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

// The products of linear layers, by the library that is fastest for them on
// this processor. The choice depends on processor, types and shapes alone, so
// equal networks have equal bits wherever they are cut.
namespace cleave {

// input weightᵀ + bias, as at::linear().
at::Tensor linear_product(const at::Tensor& input,
                          const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias);

// rows weight, of two matrices.
at::Tensor product(const at::Tensor& rows, const at::Tensor& weight);

// rowsᵀ input, of two matrices: the gradient of a weight.
at::Tensor weight_product(const at::Tensor& rows, const at::Tensor& input);

}  // namespace cleave
