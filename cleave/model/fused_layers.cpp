#include "cleave/model/fused_layers.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <typeinfo>

#include "cleave/model/intercept/split_linear.h"
#include "cleave/model/intercept/weight_queue.h"

namespace cleave {
namespace {

// This very type: what is derived from it may do anything.
template <class Module>
bool is(const Layer& layer) {
  const torch::nn::Module& module = *layer.module;
  return typeid(module) == typeid(Module);
}

}  // namespace

std::optional<FusedLayers> FusedLayers::of(const Layer& first,
                                           const Layer& second) {
  if (is<torch::nn::LinearImpl>(first) && is<torch::nn::ReLUImpl>(second)) {
    return FusedLayers(first);
  }
  return std::nullopt;
}

FusedLayers::FusedLayers(const Layer& linear)
    : weight_(linear.module->as<torch::nn::LinearImpl>()->weight),
      bias_(linear.module->as<torch::nn::LinearImpl>()->bias) {}

// torch::nn::Linear adds the bias of other inputs in another way.
at::Tensor FusedLayers::forward(const at::Tensor& input) const {
  if (input.dim() != 2 || !bias_.defined() || !can_split(weight_, bias_)) {
    return {};
  }
  return split_linear(input, weight_, bias_, Activation::relu);
}

}  // namespace cleave
