#include "cleave/data/fashion_mnist.h"

#include <torch/types.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cleave/data/idx.h"
#include "cleave/error.h"

namespace cleave {
namespace {

constexpr std::int64_t kSide = 28;
constexpr int kClasses = 10;

IdxArray read(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) {
    fail("Fashion-MNIST is not there: no file " + file.string(),
         "Install the Debian package dataset-fashion-mnist, or name the folder "
         "that holds its four files.");
  }
  return read_idx(file);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text;
}

at::Tensor as_tensor(IdxArray& array, std::int64_t count) {
  return torch::from_blob(array.values.data(), array.shape, at::kByte)
      .narrow(0, 0, count);
}

at::Tensor normalised(const at::Tensor& pixels) {
  return pixels.to(at::kFloat)
      .sub_(255 * kFashionMnistMean)
      .div_(255 * kFashionMnistDeviation)
      .unsqueeze_(1);
}

void check_images(const IdxArray& images, const std::filesystem::path& file) {
  const std::vector<std::int64_t>& shape = images.shape;
  if (shape.size() != 3 || shape[1] != kSide || shape[2] != kSide) {
    fail(file.string() + " holds an array of " + shape_text(shape) +
             ", not pictures of 28x28",
         "Fetch the file again.");
  }
}

void check_labels(const IdxArray& labels,
                  std::int64_t pictures,
                  const std::filesystem::path& file) {
  if (labels.shape != std::vector<std::int64_t>{pictures}) {
    fail(file.string() + " holds an array of " + shape_text(labels.shape) +
             ", not one label for each of " + std::to_string(pictures) +
             " pictures",
         "Take both files from the same release.");
  }
  const int highest =
      *std::max_element(labels.values.begin(), labels.values.end());
  if (highest >= kClasses) {
    fail(file.string() + " holds the label " + std::to_string(highest) +
             "; there are 10 classes",
         "Fetch the file again.");
  }
}

}  // namespace

std::unique_ptr<Dataset> load_fashion_mnist(Split split,
                                            const std::filesystem::path& folder,
                                            std::int64_t limit) {
  if (limit < 0) {
    fail("a limit of " + std::to_string(limit) + " samples",
         "Give a positive number, or 0 for all.");
  }
  const std::string part = split == Split::train ? "train" : "t10k";
  const auto image_file = folder / (part + "-images-idx3-ubyte.gz");
  const auto label_file = folder / (part + "-labels-idx1-ubyte.gz");
  IdxArray images = read(image_file);
  check_images(images, image_file);
  const std::int64_t pictures = images.shape[0];
  IdxArray labels = read(label_file);
  check_labels(labels, pictures, label_file);
  const std::int64_t count = limit == 0 ? pictures : std::min(limit, pictures);
  return std::make_unique<TensorDataset>(normalised(as_tensor(images, count)),
                                         as_tensor(labels, count).to(at::kLong),
                                         kClasses,
                                         "Fashion-MNIST, " +
                                             std::to_string(count) +
                                             " pictures of 28x28 in 10 "
                                             "classes");
}

}  // namespace cleave
