#pragma once

#include <torch/csrc/autograd/edge.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cleave/ids.h"
#include "cleave/model/loss.h"
#include "cleave/model/network.h"

namespace cleave {

// What the last stage compares its result with.
struct Goal {
  const Loss* loss = nullptr;
  at::Tensor targets;
  double weight = 1;  // of the loss's sum: one over the batch's count
};

// One consecutive run of layers during training. Keeps what backward needs of
// every microbatch between its forward and its backward, and nothing longer.
// Gradients add up in the parameters, in the order autograd would add them in
// the unsplit network: exactness rests on that. Not thread-safe: one executor
// owns it.
class Stage {
 public:
  // Builds the layers from `first` up to `last`.
  Stage(const Model& model, int first, int last);

  Network& network() { return *network_; }
  const Network& network() const { return *network_; }

  // F: the values that cross into the stage to those that leave it. The
  // returned tensors share memory with this stage's and carry no history;
  // requires_grad() tells whether their gradient is wanted. With a goal, the
  // loss of the result (not weighted) is kept for loss().
  Values forward(Microbatch microbatch,
                 const Values& inputs,
                 const Moment& moment,
                 const std::optional<Goal>& goal);

  // B: the gradients of what forward returned (undefined: none) to those of
  // what it took. With a goal, `gradients` is empty.
  Values backward(Microbatch microbatch, const Values& gradients);

  // The loss forward found for this microbatch.
  double loss(Microbatch microbatch) const { return losses_.at(microbatch); }

  // Seeds the next backward: `gradient` is what later stages found for the
  // shared parameter `parameter`, a leaf this stage uses.
  void add_tied_gradient(const at::Tensor& parameter, at::Tensor gradient);

  // Forgets the microbatches of the step that ended.
  void clear();

 private:
  // Between the forward and the backward of a microbatch.
  struct InFlight {
    Values entered;                              // leaves
    std::vector<torch::autograd::Edge> leaving;  // per value, may be null
    at::Tensor seed;                             // with a goal
  };

  struct TiedGradient {
    torch::autograd::Edge parameter;
    at::Tensor gradient;
  };

  std::shared_ptr<Network> network_;
  std::map<Microbatch, InFlight> in_flight_;
  std::map<Microbatch, double> losses_;
  std::vector<TiedGradient> tied_gradients_;
};

}  // namespace cleave
