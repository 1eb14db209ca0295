#include "cleave/optimizer/fused_call.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace cleave {

FusedCall fused_call_for(const Parameter& parameter,
                         const std::vector<ParameterGroup>& groups,
                         double weight_decay) {
  const at::ScalarType type = parameter.value.scalar_type();
  const auto group = std::ranges::find_if(groups, [&](const auto& candidate) {
    return fits(candidate, parameter);
  });
  if (group == groups.end()) {
    return {type, weight_decay};
  }
  return {type, group->weight_decay.value_or(weight_decay), group->rate};
}

void mark_as_changed(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    torch::autograd::impl::bump_version(parameter);
  }
}

}  // namespace cleave
