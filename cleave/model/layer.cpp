#include "cleave/model/layer.h"

#include <torch/types.h>

#include "cleave/error.h"

namespace cleave {

void fail_on_input_count(size_t given) {
  fail("it was given " + std::to_string(given) +
           " tensors, and its forward does not take that many",
       "Name what it reads with reads().");
}

Layer make_layer(const torch::nn::AnyModule& module) {
  // std::function must be copyable; AnyModule is not.
  auto copy = std::make_shared<torch::nn::AnyModule>(module.clone());
  return {
      copy->ptr(), [copy](const Values& inputs) -> Values {
        switch (inputs.size()) {
          case 1:
            return {copy->any_forward(inputs[0]).get<at::Tensor>()};
          case 2:
            return {copy->any_forward(inputs[0], inputs[1]).get<at::Tensor>()};
          default:
            fail_on_input_count(inputs.size());
        }
      }};
}

}  // namespace cleave
