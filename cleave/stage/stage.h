#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cleave/ids.h"
#include "cleave/model/intercept/graph_node.h"
#include "cleave/model/intercept/weight_queue.h"
#include "cleave/model/loss.h"
#include "cleave/model/network.h"
#include "cleave/stage/edge_split.h"

namespace cleave {

// What the last stage compares its result with.
struct Goal {
  const Loss* loss = nullptr;
  at::Tensor targets;
  double weight = 1;  // of the loss's sum: one over the batch's count
};

// One consecutive run of layers during training. Keeps what backward needs of
// every microbatch between its forward and its backward, what the weights need
// until they have their gradients, and nothing longer.
// Gradients add up in the parameters, in the order autograd would add them in
// the unsplit network: exactness rests on that.
// forward(), backward() and weights() may run at the same time, but none of
// them twice; everything else by itself.
class Stage {
 public:
  // Builds the layers from `first` up to `last`.
  Stage(const Model& model, int first, int last);

  Network& network() { return *network_; }
  const Network& network() const { return *network_; }

  // Starts a step, and forgets the microbatches of the one before. `split`:
  // backwards will be split into B and W.
  void begin(bool split);

  // F: the values that cross into the stage to those that leave it. Lets go of
  // what no backward needs as soon as no further layer reads it. The returned
  // tensors share memory with this stage's and carry no history;
  // requires_grad() tells whether their gradient is wanted. With a goal, the
  // loss of the result (not weighted) is kept for loss().
  Values forward(Microbatch microbatch,
                 Values inputs,
                 const Moment& moment,
                 const std::optional<Goal>& goal);

  // B: the gradients of what forward returned (undefined: none) to those of
  // what it took. With a goal, `gradients` is empty. In a split step, gradients
  // of weights are left open until weights() where they can wait. In a step
  // that is not split, calls `found` with every parameter that has its
  // gradient, as soon as it has it.
  Values backward(Microbatch microbatch,
                  Values gradients,
                  const GradientFound& found = {});

  // W: the weight gradients that backward left open, if any: in a step that is
  // not split there are none. Calls `found` with every parameter of the stage,
  // as soon as it has its gradient: first with those that did not wait.
  // REQUIRES: backward() ran for the microbatch.
  void weights(Microbatch microbatch, const GradientFound& found = {});

  // The loss forward found for this microbatch.
  double loss(Microbatch microbatch) const;

  // Makes every backward give the gradient of `parameter` at once, because
  // other stages wait for it.
  void add_at_once(const at::Tensor& parameter) { at_once_.add(parameter); }

  // Seeds the next backward: `gradient` is what later stages found for the
  // shared parameter `parameter`, a leaf this stage uses.
  void add_tied_gradient(const at::Tensor& parameter, at::Tensor gradient);

 private:
  // Between the forward and the backward of a microbatch.
  struct InFlight {
    std::vector<NodePointer> entered;            // per value, may be null
    std::vector<torch::autograd::Edge> leaving;  // the same
    at::Tensor seed;                             // with a goal
  };

  // Between the backward and the weights of a microbatch.
  struct OpenWeights {
    WeightQueue queue;
    std::optional<EdgeSplit> others;
  };

  struct TiedGradient {
    torch::autograd::Edge parameter;
    at::Tensor gradient;
  };

  // Autograd's graph of a microbatch, and what flows into it.
  struct Roots {
    torch::autograd::edge_list edges;
    torch::autograd::variable_list seeds;
  };

  void keep_accumulator(const at::Tensor& parameter);
  void keep(Microbatch microbatch, InFlight kept, std::optional<double> loss);

  // Removes it; none where there is none.
  template <class Kept>
  std::optional<Kept> take(std::map<Microbatch, Kept>& from,
                           Microbatch microbatch);

  Roots roots_of(const InFlight& kept, Values gradients);
  Values backward_reporting(const InFlight& kept,
                            Roots roots,
                            const GradientFound& found);
  static Values backward_whole(const InFlight& kept, Roots roots);
  Values backward_split(const InFlight& kept, Roots roots, OpenWeights& open);
  void find_deferrable(WeightQueue& queue);
  void report_others(const WeightQueue& queue, const GradientFound& found);

  std::shared_ptr<Network> network_;
  // The parameters' places in autograd's graphs, which libtorch would otherwise
  // make anew for every forward, and drop in backwards on other threads.
  std::vector<NodePointer> accumulators_;
  bool split_ = false;
  bool found_deferrable_ = false;
  AtOnce at_once_;
  Values walked_;             // parameters whose W needs a walk of the graph
  mutable std::mutex mutex_;  // guards the maps below, not what is in them
  std::map<Microbatch, OpenWeights> open_;
  std::map<Microbatch, InFlight> in_flight_;
  std::map<Microbatch, double> losses_;
  std::vector<TiedGradient> tied_gradients_;
  std::shared_ptr<const GradientFound*> listener_;  // of the parameters' hooks
};

}  // namespace cleave
