#include "cleave/data/dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "cleave/error.h"

namespace cleave {
namespace {

at::Tensor checked(const at::Tensor& tensor, const std::string& what) {
  if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) == 0) {
    fail("the " + what + " of a dataset hold no rows",
         "Give a tensor whose first dimension counts the samples.");
  }
  if (!tensor.device().is_cpu()) {
    fail("the " + what + " of a dataset are on " + tensor.device().str(),
         "Move them to the CPU; the trainer moves each batch on.");
  }
  return tensor.detach().contiguous();
}

void check_targets(const at::Tensor& targets, int classes) {
  if (classes < 0) {
    fail("a dataset has " + std::to_string(classes) + " classes",
         "Give at least one, or zero for regression.");
  }
  if (classes == 0) {
    if (!targets.is_floating_point()) {
      fail("the targets of a regression are no floating-point numbers",
           "Convert them, or give the number of classes.");
    }
    return;
  }
  if (targets.scalar_type() != at::kLong) {
    fail("the targets of a classification are no 64-bit integers",
         "Convert them with .to(torch::kInt64).");
  }
  const auto lowest = targets.min().item<std::int64_t>();
  const auto highest = targets.max().item<std::int64_t>();
  if (lowest < 0 || highest >= classes) {
    fail("the targets reach from " + std::to_string(lowest) + " to " +
             std::to_string(highest) + " but there are " +
             std::to_string(classes) + " classes",
         "Number the classes from 0.");
  }
}

}  // namespace

TensorDataset::TensorDataset(const at::Tensor& inputs,
                             const at::Tensor& targets,
                             int classes,
                             std::string description)
    : inputs_(checked(inputs, "inputs")),
      targets_(checked(targets, "targets")),
      classes_(classes),
      description_(std::move(description)) {
  if (inputs_.size(0) != targets_.size(0)) {
    fail("a dataset has " + std::to_string(inputs_.size(0)) + " inputs but " +
             std::to_string(targets_.size(0)) + " targets",
         "Give one row of targets per row of inputs.");
  }
  if (targets_.numel() == 0) {
    fail("the targets of a dataset hold no values", "Give at least one each.");
  }
  check_targets(targets_, classes_);
}

Batch TensorDataset::get(std::span<const std::int64_t> indices) const {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size()) {
      fail("sample " + std::to_string(index) +
               " was asked for but the dataset"
               " has " +
               std::to_string(size()),
           "Ask for numbers from 0 to " + std::to_string(size() - 1) + ".");
    }
  }
  const at::Tensor rows =
      torch::tensor(at::IntArrayRef(indices.data(), indices.size()), at::kLong);
  return {inputs_.index_select(0, rows), targets_.index_select(0, rows)};
}

Batch first_samples(const Dataset& data, std::int64_t count) {
  std::vector<std::int64_t> indices(std::min(count, data.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return data.get(indices);
}

}  // namespace cleave
