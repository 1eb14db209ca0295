#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "cleave/model/intercept/intercept.h"
#include "cleave/model/layer.h"

// Splitting backward in two: while B runs, operations that know how (linear,
// convolution, embedding) compute only the gradients of their inputs, and queue
// the gradients of their weights for W.
namespace cleave {

// Called with every parameter that has its gradient of a microbatch.
using GradientFound = std::function<void(const at::Tensor& parameter)>;

// Adds a gradient to what the parameter has, as autograd would: the first one
// is taken over, later ones are added in place.
void accumulate_gradient(const at::Tensor& parameter, at::Tensor gradient);

// The parameters of a stage whose gradients cannot wait for W.
class AtOnce {
 public:
  void add(const at::Tensor& parameter);
  bool has(const at::Tensor& parameter) const;

 private:
  std::set<const void*> parameters_;
};

// The weight gradients that the B of one microbatch left open. Used by one
// thread at a time.
class WeightQueue {
 public:
  // Computes one gradient per parameter of an operation.
  using Work = std::function<Values()>;

  // REQUIRES: every parameter is defined and requires a gradient.
  void push(Values parameters, Work work);

  bool has(const at::Tensor& parameter) const;

  // W: does the work in the order it came and adds the gradients up. Several
  // gradients of one parameter are summed first, as autograd sums them. Calls
  // `found` with every parameter that has its gradient.
  void run(const GradientFound& found = {});

 private:
  struct Entry {
    Values parameters;
    Work work;
  };

  std::vector<Entry> entries_;
};

// While it lives, the operations above, called on this thread, are recorded so
// that their backward can be split.
class SplittingForward {
 public:
  SplittingForward();

 private:
  std::optional<Intercept> intercept_;
};

// While it lives, a backward on this thread queues what can wait; without one,
// the operations give all their gradients to autograd.
class SplittingBackward {
 public:
  SplittingBackward(WeightQueue& queue, const AtOnce& at_once);
  ~SplittingBackward();
  SplittingBackward(const SplittingBackward&) = delete;
  SplittingBackward& operator=(const SplittingBackward&) = delete;
};

// Whether an operation with these can have its backward split. Only a
// parameter's gradient can wait: what was computed from parameters must pass
// its gradient on.
bool can_split(const at::Tensor& weight,
               const std::optional<at::Tensor>& bias = {});

// The queue for the gradients of these parameters; null where they cannot wait
// or no SplittingBackward is alive. Undefined parameters do not matter.
WeightQueue* queue_for(const Values& parameters);

// Gives the gradients of the defined ones of `parameters` to the queue, or,
// where there is none for them, returns them at once, undefined for undefined.
Values now_or_later(const Values& parameters, const WeightQueue::Work& work);

// Registers the operations; called by SplittingForward.
void install_split_operations();

}  // namespace cleave
