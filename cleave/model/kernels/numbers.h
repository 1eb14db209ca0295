#pragma once

#include <ATen/core/Tensor.h>

#include "cleave/model/kernels/kernels.h"

// How tensors are given to kernels.
namespace cleave {

// Whether kernels can read it: fp32 or bf16, on a CPU.
inline bool has_number_type(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && (tensor.scalar_type() == at::kFloat ||
                                      tensor.scalar_type() == at::kBFloat16);
}

// Calls action(Number()) with the type of its numbers in memory.
// REQUIRES: has_number_type(tensor).
template <class Action>
void for_number_type(const at::Tensor& tensor, const Action& action) {
  if (tensor.scalar_type() == at::kFloat) {
    action(float());
  } else {
    action(Bf16());
  }
}

// Its memory. REQUIRES: the tensor has that type.
template <class Number>
Number* numbers(const at::Tensor& tensor) {
  return static_cast<Number*>(tensor.mutable_data_ptr());
}

}  // namespace cleave
