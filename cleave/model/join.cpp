#include "cleave/model/join.h"

#include <torch/autograd.h>
#include <torch/types.h>

namespace cleave {
namespace {

struct Join : torch::autograd::Function<Join> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            at::TensorList parts) {
    std::vector<std::int64_t> sizes;
    for (const at::Tensor& part : parts) {
      sizes.push_back(part.size(-1));
    }
    context->saved_data["sizes"] = sizes;
    return torch::cat(parts, -1);
  }

  static Values backward(torch::autograd::AutogradContext* context,
                         const Values& gradients) {
    return at::split_with_sizes_copy(
        gradients[0], context->saved_data["sizes"].toIntVector(), -1);
  }
};

}  // namespace

at::Tensor joined(const Values& parts) {
  return Join::apply(at::TensorList(parts));
}

Layer make_join() {
  return {.module = std::make_shared<torch::nn::Module>("join"),
          .forward = [](const Values& parts) { return Values{joined(parts)}; },
          .joins = true};
}

}  // namespace cleave
