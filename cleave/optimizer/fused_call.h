#pragma once

#include <compare>
#include <vector>

#include "cleave/optimizer/optimizer.h"

// For optimizers with libtorch's fused kernels.
namespace cleave {

// What the tensors of one call have in common.
struct FusedCall {
  at::ScalarType type;
  double weight_decay = 0;
  double rate = 1;  // factor of the learning rate

  auto operator<=>(const FusedCall&) const = default;
};

// `weight_decay`: where no group says another.
FusedCall fused_call_for(const Parameter& parameter,
                         const std::vector<ParameterGroup>& groups,
                         double weight_decay);

// libtorch's in-place operations raise a tensor's version; its fused ones do
// not.
void mark_as_changed(const std::vector<at::Tensor>& parameters);

}  // namespace cleave
