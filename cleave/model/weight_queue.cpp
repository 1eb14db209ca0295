#include "cleave/model/weight_queue.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <utility>

namespace cleave {
namespace {

struct CurrentBackward {
  WeightQueue* queue = nullptr;
  const AtOnce* at_once = nullptr;
};

CurrentBackward& current_backward() {
  // NOLINTNEXTLINE: the operations' backward is called by autograd.
  thread_local CurrentBackward current;
  return current;
}

const void* key_of(const at::Tensor& parameter) {
  return parameter.unsafeGetTensorImpl();
}

}  // namespace

void accumulate_gradient(const at::Tensor& parameter, at::Tensor gradient) {
  const torch::NoGradGuard no_grad;
  at::Tensor& sum = parameter.mutable_grad();
  if (sum.defined()) {
    sum.add_(gradient);
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
  const torch::NoGradGuard no_grad;
  std::map<const void*, int> open;  // gradients still to come, per parameter
  for (const Entry& entry : entries_) {
    for (const at::Tensor& parameter : entry.parameters) {
      ++open[key_of(parameter)];
    }
  }
  std::map<const void*, at::Tensor> sums;
  for (Entry& entry : entries_) {
    const Values gradients = entry.work();
    entry.work = nullptr;  // and with it what it kept in memory
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor& parameter = entry.parameters[i];
      at::Tensor& sum = sums[key_of(parameter)];
      sum = sum.defined() ? sum + gradients[i] : gradients[i];
      if (--open[key_of(parameter)] == 0) {
        accumulate_gradient(parameter, std::exchange(sum, {}));
      }
    }
  }
  entries_.clear();
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
