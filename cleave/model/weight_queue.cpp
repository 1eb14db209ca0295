#include "cleave/model/weight_queue.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <utility>

#include "cleave/model/numbers.h"

namespace cleave {
namespace {

constexpr std::int64_t kSumShare = 1 << 16;  // numbers that pay for a thread

struct CurrentBackward {
  WeightQueue* queue = nullptr;
  const AtOnce* at_once = nullptr;
};

CurrentBackward& current_backward() {
  // NOLINTNEXTLINE: the operations' backward is called by autograd.
  thread_local CurrentBackward current;
  return current;
}

// The same as sum.add_(gradient), which would first make a copy of the gradient
// in the type of the sum.
void add_to(at::Tensor& sum, const at::Tensor& gradient) {
  if (gradient.is_sparse() || gradient.scalar_type() != at::kBFloat16 ||
      sum.scalar_type() != at::kFloat || !sum.is_contiguous() ||
      !gradient.is_contiguous()) {
    sum.add_(gradient);
    return;
  }
  float* const to = numbers<float>(sum);
  const Bf16* const from = numbers<Bf16>(gradient);
  at::parallel_for(
      0, sum.numel(), kSumShare, [&](std::int64_t first, std::int64_t end) {
        kernels::add(to + first, from + first, end - first);
      });
}

const void* key_of(const at::Tensor& parameter) {
  return parameter.unsafeGetTensorImpl();
}

}  // namespace

void accumulate_gradient(const at::Tensor& parameter, at::Tensor gradient) {
  const torch::NoGradGuard no_grad;
  at::Tensor& sum = parameter.mutable_grad();
  if (sum.defined()) {
    add_to(sum, gradient);
  } else if (gradient.is_sparse()) {
    sum = gradient.to_dense();
  } else if (gradient.scalar_type() != parameter.scalar_type()) {
    sum = gradient.to(parameter.scalar_type());
  } else if (gradient.strides() == parameter.strides()) {
    sum = std::move(gradient);
  } else {
    sum = at::empty_like(parameter).copy_(gradient);
  }
}

void AtOnce::add(const at::Tensor& parameter) {
  parameters_.insert(key_of(parameter));
}

bool AtOnce::has(const at::Tensor& parameter) const {
  return parameters_.contains(key_of(parameter));
}

void WeightQueue::push(Values parameters, Work work) {
  for (const at::Tensor& parameter : parameters) {
    ++left_[key_of(parameter)];
  }
  entries_.push_back({std::move(parameters), std::move(work)});
}

bool WeightQueue::has(const at::Tensor& parameter) const {
  for (const Entry& entry : entries_) {
    for (const at::Tensor& own : entry.parameters) {
      if (own.is_same(parameter)) {
        return true;
      }
    }
  }
  return false;
}

void WeightQueue::run() {
  while (run_next()) {
  }
}

bool WeightQueue::run_next() {
  if (next_ == entries_.size()) {
    return false;
  }
  const torch::NoGradGuard no_grad;
  Entry& entry = entries_[next_++];
  const Values gradients = entry.work();
  entry.work = nullptr;  // and with it what it kept in memory
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& parameter = entry.parameters[i];
    const auto type = parameter.scalar_type();
    int& left = left_[key_of(parameter)];
    at::Tensor& sum = sums_[key_of(parameter)];
    const bool is_only_one = !sum.defined() && left == 1;
    const at::Tensor gradient = gradients[i].is_sparse() && !is_only_one
                                    ? gradients[i].to_dense()
                                    : gradients[i];
    sum = sum.defined() ? sum.to(type) + gradient.to(type) : gradient;
    if (--left == 0) {
      accumulate_gradient(parameter, std::exchange(sum, {}));
    }
  }
  return true;
}

SplittingForward::SplittingForward() {
  install_split_operations();
  intercept_.emplace();
}

SplittingBackward::SplittingBackward(WeightQueue& queue,
                                     const AtOnce& at_once) {
  current_backward() = {&queue, &at_once};
}

SplittingBackward::~SplittingBackward() {
  current_backward() = {};
}

WeightQueue* queue_for(const Values& parameters) {
  const CurrentBackward& current = current_backward();
  if (current.queue == nullptr) {
    return nullptr;
  }
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined() && current.at_once->has(parameter)) {
      return nullptr;
    }
  }
  return current.queue;
}

}  // namespace cleave
