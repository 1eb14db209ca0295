#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "cleave/error.h"
#include "cleave/model/families/families.h"

namespace cleave {
namespace {

// Two arguments: the branch and the skip it started from.
struct SumImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& branch, const at::Tensor& skip) {
    return branch + skip;
  }
};

// Averages each channel over the whole image: [n, c, h, w] to [n, c].
struct AverageImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& images) { return images.mean({2, 3}); }
};

torch::nn::Conv2dOptions convolution(std::int64_t in, std::int64_t out) {
  return torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false);
}

void check_images(const FamilyOptions& options, const char* family) {
  if (options.input.size() != 3) {
    fail(std::string(family) + " needs images, [channels, height, width]",
         "Choose data that has them, such as fashion-mnist or synthetic "
         "images.");
  }
}

}  // namespace

Model convnet(const FamilyOptions& options) {
  check_images(options, "convnet");
  const std::int64_t width = options.width > 0 ? options.width : 16;
  const std::int64_t depth = options.depth > 0 ? options.depth : 2;
  std::int64_t channels = options.input[0];
  std::int64_t height = options.input[1];
  std::int64_t length = options.input[2];

  Model model("convnet", options.seed);
  for (std::int64_t i = 0; i < depth; ++i) {
    const std::string number = std::to_string(i);
    const std::int64_t wider = (i + 1) * width;
    model.add<torch::nn::Conv2d>("conv." + number,
                                 convolution(channels, wider));
    model.add<torch::nn::BatchNorm2d>("norm." + number, wider);
    model.add<torch::nn::ReLU>("relu." + number);
    model.add<torch::nn::MaxPool2d>("pool." + number, 2);
    channels = wider;
    height /= 2;
    length /= 2;
  }
  if (height < 1 || length < 1) {
    fail("images of " + std::to_string(options.input[1]) + " x " +
             std::to_string(options.input[2]) + " cannot be halved " +
             std::to_string(depth) + " times",
         "Choose a smaller model.depth.");
  }
  model.add<torch::nn::Flatten>("flatten");
  model.add<torch::nn::Dropout>("dropout", options.dropout);
  model.add<torch::nn::Linear>("hidden", channels * height * length, 4 * width);
  model.add<torch::nn::ReLU>("relu.hidden");
  model.add<torch::nn::Linear>("out", 4 * width, options.outputs);
  return model;
}

Model resnet(const FamilyOptions& options) {
  check_images(options, "resnet");
  const std::int64_t width = options.width > 0 ? options.width : 16;
  const std::int64_t depth = options.depth > 0 ? options.depth : 3;

  Model model("resnet", options.seed);
  model.add<torch::nn::Conv2d>("stem", convolution(options.input[0], width));
  std::string skip = "stem";
  for (std::int64_t i = 0; i < depth; ++i) {
    const std::string block = "block." + std::to_string(i) + ".";
    model.add<torch::nn::BatchNorm2d>(block + "norm_1", width).reads({skip});
    model.add<torch::nn::ReLU>(block + "relu_1");
    model.add<torch::nn::Conv2d>(block + "conv_1", convolution(width, width));
    model.add<torch::nn::BatchNorm2d>(block + "norm_2", width);
    model.add<torch::nn::ReLU>(block + "relu_2");
    model.add<torch::nn::Conv2d>(block + "conv_2", convolution(width, width));
    model.add<SumImpl>(block + "sum").reads({block + "conv_2", skip});
    skip = block + "sum";
  }
  model.add<torch::nn::ReLU>("relu");
  model.add<AverageImpl>("average");
  model.add<torch::nn::Linear>("out", width, options.outputs);
  return model;
}

}  // namespace cleave
