#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "cleave/model/families/families.h"

namespace cleave {

Model mlp(const FamilyOptions& options) {
  const std::int64_t width = options.width > 0 ? options.width : 128;
  const std::int64_t depth = options.depth > 0 ? options.depth : 2;
  std::int64_t features = 1;
  for (const std::int64_t size : options.input) {
    features *= size;
  }

  Model model("mlp", options.seed);
  model.add<torch::nn::Flatten>("flatten");
  for (std::int64_t i = 0; i < depth; ++i) {
    const std::string number = std::to_string(i);
    model.add<torch::nn::Linear>(
        "hidden." + number, i == 0 ? features : width, width);
    model.add<torch::nn::ReLU>("relu." + number);
    if (options.dropout > 0) {
      model.add<torch::nn::Dropout>("dropout." + number, options.dropout);
    }
  }
  model.add<torch::nn::Linear>("out", width, options.outputs);
  return model;
}

}  // namespace cleave
