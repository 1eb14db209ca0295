#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <map>

#include "cleave/model/intercept/split_linear.h"
#include "cleave/model/intercept/weight_queue.h"
#include "cleave/model/model.h"
#include "cleave/model/wiring.h"

namespace cleave {
namespace {

// Both as one module, whose parameters are those of the linear layer.
class LinearRelu : public torch::nn::Module {
 public:
  // Both layers are built; `linear` is a torch::nn::Linear.
  LinearRelu(Layer linear, Layer relu)
      : Module("LinearReLU"),
        linear_(std::move(linear)),
        relu_(std::move(relu)) {
    const auto& own = *linear_.module->as<torch::nn::LinearImpl>();
    weight_ =
        register_parameter("weight", own.weight, own.weight.requires_grad());
    bias_ = register_parameter(
        "bias", own.bias, own.bias.defined() && own.bias.requires_grad());
  }

  Values forward(const at::Tensor& input) {
    // torch::nn::Linear adds the bias of other inputs in another way.
    if (input.dim() == 2 && bias_.defined() && can_split(weight_, bias_)) {
      return {split_linear(input, weight_, bias_, Activation::relu)};
    }
    return relu_.forward(linear_.forward({input}));
  }

 private:
  Layer linear_;
  Layer relu_;
  at::Tensor weight_;
  at::Tensor bias_;
};

Recipe linear_with_relu(const Recipe& linear, const Recipe& relu) {
  return [linear, relu] {
    Layer first = linear();
    return make_layer(std::make_shared<LinearRelu>(std::move(first), relu()));
  };
}

// The read with the layer it names renamed: "relu" or "relu:0".
std::string renamed(const std::string& read,
                    const std::map<std::string, std::string>& names) {
  const std::string layer = read.substr(0, read.find(':'));
  const auto name = names.find(layer);
  return name == names.end() ? read : name->second + read.substr(layer.size());
}

}  // namespace

Model fuse(const Model& model) {
  if (model.size() == 0) {
    return model;
  }
  const Wiring wiring = model.wiring();
  const auto goes_with_next = [&](int index) {
    if (index + 1 >= model.size()) {
      return false;
    }
    const LayerSpec& layer = model.layers_[index];
    const LayerSpec& next = model.layers_[index + 1];
    // These very types: what is derived from them may do anything.
    return layer.module_ == typeid(torch::nn::LinearImpl) &&
           next.module_ == typeid(torch::nn::ReLUImpl) &&
           next.shares_.empty() &&
           wiring.reads(index + 1) == std::vector<Value>{{index, 0}} &&
           wiring.is_dead({index, 0}, index + 2);
  };
  Model fused(model.name(), model.seed());
  std::map<std::string, std::string> new_names;
  for (int index = 0; index < model.size(); ++index) {
    LayerSpec& spec = fused.layers_.emplace_back(model.layers_[index]);
    for (std::string& read : spec.reads_) {
      read = renamed(read, new_names);
    }
    if (goes_with_next(index)) {
      const LayerSpec& relu = model.layers_[++index];
      new_names[relu.name()] = spec.name();
      spec.recipe_ = linear_with_relu(spec.recipe_, relu.recipe_);
      spec.module_ = typeid(void);
    }
  }
  return fused;
}

}  // namespace cleave
