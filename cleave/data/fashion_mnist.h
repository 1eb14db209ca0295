#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "cleave/data/dataset.h"

// Fashion-MNIST (Zalando, MIT licence): 60,000 and 10,000 grey pictures of 28
// by 28 pixels in 10 classes of clothing.
namespace cleave {

// Where the Debian package dataset-fashion-mnist puts it.
inline constexpr const char* kFashionMnistFolder =
    "/usr/share/datasets/fashion-mnist";

// Mean and standard deviation of the training pixels, on a scale of 0 to 1.
inline constexpr double kFashionMnistMean = 0.2860;
inline constexpr double kFashionMnistDeviation = 0.3530;

// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz in `folder`. Inputs are
// floats [n, 1, 28, 28], normalised to mean 0 and deviation 1; targets the
// labels [n]. Takes the first `limit` samples; 0: all. Throws Error that names
// the file, and the package where it is missing.
std::unique_ptr<Dataset> load_fashion_mnist(
    Split split,
    const std::filesystem::path& folder = kFashionMnistFolder,
    std::int64_t limit = 0);

}  // namespace cleave
