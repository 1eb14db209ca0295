#include "cleave/model/intercept/weight_queue.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <utility>

#include "cleave/device/device.h"
#include "cleave/device/memory.h"
#include "cleave/model/kernels/numbers.h"

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

// In the parameter's own form: not sparse, and of its type.
at::Tensor dense_as(const at::Tensor& parameter, const at::Tensor& gradient) {
  return (gradient.is_sparse() ? gradient.to_dense() : gradient)
      .to(parameter.scalar_type());
}

const void* key_of(const at::Tensor& parameter) {
  return parameter.unsafeGetTensorImpl();
}

// Hooks want to see a gradient while autograd makes it.
bool can_wait(const at::Tensor& parameter) {
  return parameter.requires_grad() && parameter.is_leaf() &&
         torch::autograd::impl::hooks(parameter).empty();
}

}  // namespace

void accumulate_gradient(const at::Tensor& parameter, at::Tensor gradient) {
  const torch::NoGradGuard no_grad;
  at::Tensor& sum = parameter.mutable_grad();
  if (sum.defined()) {
    add_to(sum, gradient);
    return;
  }
  gradient = dense_as(parameter, gradient);
  sum = gradient.strides() == parameter.strides() && is_held_once(gradient)
            ? std::move(gradient)
            : at::empty_like(parameter).copy_(gradient);
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

void WeightQueue::run(const GradientFound& found) {
  const torch::NoGradGuard no_grad;
  std::map<const void*, int> left;  // gradients still to come, per parameter
  for (const Entry& entry : entries_) {
    for (const at::Tensor& parameter : entry.parameters) {
      ++left[key_of(parameter)];
    }
  }
  std::map<const void*, at::Tensor> sums;
  for (Entry& entry : entries_) {
    Values gradients = entry.work();
    entry.work = nullptr;  // and with it what it kept in memory
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor& parameter = entry.parameters[i];
      at::Tensor& sum = sums[key_of(parameter)];
      if (sum.defined() || left[key_of(parameter)] > 1) {
        const at::Tensor gradient = dense_as(parameter, gradients[i]);
        sum = sum.defined() ? sum + gradient : gradient;
      } else {
        sum = std::move(gradients[i]);
      }
      if (--left[key_of(parameter)] == 0) {
        accumulate_gradient(parameter, std::exchange(sum, {}));
        if (found) {
          found(parameter);
        }
      }
    }
  }
  entries_.clear();
}

SplittingForward::SplittingForward() {
  if (!process_hooks().dispatcher) {
    return;
  }
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

bool can_split(const at::Tensor& weight,
               const std::optional<at::Tensor>& bias) {
  return process_hooks().dispatcher && at::GradMode::is_enabled() &&
         can_wait(weight) && (!bias || !bias->defined() || can_wait(*bias));
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

Values now_or_later(const Values& parameters, const WeightQueue::Work& work) {
  Values defined;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined()) {
      defined.push_back(parameter);
    }
  }
  Values now(parameters.size());
  if (WeightQueue* queue = queue_for(defined)) {
    queue->push(defined, work);
    return now;
  }
  const Values gradients = work();
  for (size_t i = 0, next = 0; i < parameters.size(); ++i) {
    if (parameters[i].defined()) {
      const at::Tensor& gradient = gradients[next++];
      // Autograd adds a sparse one to what is there; the first must be dense.
      const bool is_first = !parameters[i].grad().defined();
      now[i] =
          gradient.is_sparse() && is_first ? gradient.to_dense() : gradient;
    }
  }
  return now;
}

}  // namespace cleave
