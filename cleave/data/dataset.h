#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

namespace cleave {

// The part of the data to train on, and the part to evaluate on.
enum class Split { train, test };

// Some samples: row i of the targets belongs to row i of the inputs.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

// Numbered samples. A dataset never changes once it is made, so any number of
// threads may read it at the same time.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;

  // The samples of these numbers, in this order; a number may repeat. The
  // tensors are the caller's own. Throws Error for a number outside [0, size).
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;

  // How many classes the targets have: they are then integers in
  // [0, classes). Zero: regression, the targets are real numbers.
  virtual int classes() const = 0;

  // One line for people: what it is and how much of it.
  virtual std::string description() const = 0;
};

// Samples held in memory: row i of the two tensors is sample i. May share the
// memory of the tensors given, which must not be written to any more.
class TensorDataset : public Dataset {
 public:
  // Throws Error unless both tensors are on the CPU and have the same number
  // of rows, at least one, and the targets fit `classes` as Dataset says.
  TensorDataset(const at::Tensor& inputs,
                const at::Tensor& targets,
                int classes,
                std::string description);

  std::int64_t size() const override { return inputs_.size(0); }
  Batch get(std::span<const std::int64_t> indices) const override;
  int classes() const override { return classes_; }
  std::string description() const override { return description_; }

 private:
  at::Tensor inputs_;
  at::Tensor targets_;
  int classes_;
  std::string description_;
};

// The first `count`, or all where there are fewer.
Batch first_samples(const Dataset& data, std::int64_t count);

}  // namespace cleave
