#include "cleave/train/stage.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>

namespace cleave {
namespace {

// Puts an operation between a value that crossed a cut and the layers that
// read it. A layer may then change the value in place, as it may in the
// unsplit network; on the bare leaf libtorch forbids that.
struct Entry : torch::autograd::Function<Entry> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& leaf) {
    return leaf.detach();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*context*/,
      torch::autograd::variable_list gradients) {
    return gradients;
  }
};

torch::autograd::Edge edge_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor)
                                : torch::autograd::Edge();
}

}  // namespace

Stage::Stage(const Model& model, int first, int last)
    : network_(model.build(first, last)) {}

Values Stage::forward(Microbatch microbatch,
                      const Values& inputs,
                      const Moment& moment,
                      const std::optional<Goal>& goal) {
  InFlight& kept = in_flight_[microbatch];
  Values entering;
  for (const at::Tensor& input : inputs) {
    at::Tensor leaf = input.detach();
    leaf.set_requires_grad(input.requires_grad());
    kept.entered.push_back(leaf);
    entering.push_back(leaf.requires_grad() ? Entry::apply(leaf) : leaf);
  }
  Values leaving = network_->forward(std::move(entering), moment);
  if (goal) {
    const at::Tensor sum = goal->loss->sum(leaving.at(0), goal->targets);
    losses_[microbatch] = sum.item<double>();
    kept.leaving = {edge_of(sum)};
    kept.seed = at::full_like(sum, goal->weight);
    return {};
  }
  for (at::Tensor& value : leaving) {
    kept.leaving.push_back(edge_of(value));
    const bool wanted = value.requires_grad();
    value = value.detach();
    value.set_requires_grad(wanted);
  }
  return leaving;
}

Values Stage::backward(Microbatch microbatch, const Values& gradients) {
  const InFlight kept = std::move(in_flight_.at(microbatch));
  in_flight_.erase(microbatch);
  torch::autograd::edge_list roots;
  torch::autograd::variable_list seeds;
  for (TiedGradient& tied : tied_gradients_) {
    roots.push_back(tied.parameter);
    seeds.push_back(std::move(tied.gradient));
  }
  tied_gradients_.clear();
  for (size_t i = 0; i < kept.leaving.size(); ++i) {
    const at::Tensor& seed = kept.seed.defined() ? kept.seed : gradients[i];
    if (kept.leaving[i].is_valid() && seed.defined()) {
      roots.push_back(kept.leaving[i]);
      seeds.push_back(seed);
    }
  }
  if (!roots.empty()) {
    // Edges, not tensors: what left the stage need not stay in memory. The
    // seeds reach their places before any operation runs, so the gradients
    // that later stages found are added first, as in the unsplit network.
    torch::autograd::Engine::get_default_engine().execute(
        roots, seeds, false, false, true);
  }
  Values entered;
  for (const at::Tensor& leaf : kept.entered) {
    entered.push_back(leaf.grad());
  }
  return entered;
}

void Stage::add_tied_gradient(const at::Tensor& parameter,
                              at::Tensor gradient) {
  tied_gradients_.push_back({edge_of(parameter), std::move(gradient)});
}

void Stage::clear() {
  in_flight_.clear();
  losses_.clear();
}

}  // namespace cleave
