#include "cleave/stage/stage.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <utility>

#include "cleave/device/memory.h"
#include "cleave/model/model.h"

namespace cleave {
namespace {

// The gradient in memory of its own: it goes to another device,
// while others here may still need what it is a part of.
at::Tensor in_own_memory(at::Tensor gradient) {
  if (gradient.defined() && gradient.has_storage() && !is_held_once(gradient)) {
    gradient = gradient.clone();
  }
  return gradient;
}

// Where autograd's graph ends: at a value that crossed into the stage. Unlike a
// leaf it does not hold the value, and layers may change that in place, as they
// may in the unsplit network.
struct Entry : torch::autograd::Node {
  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& gradients) override {
    gradient = in_own_memory(std::move(gradients.at(0)));
    return {};
  }

  at::Tensor gradient;
};

// Where it begins: gives the gradients of what left the stage, and lets go of
// them. The engine itself would hold them until all is done.
struct ExitNode : torch::autograd::Node {
  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& /*gradients*/) override {
    return std::move(gradients);
  }

  torch::autograd::variable_list gradients;
};

torch::autograd::Edge edge_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor)
                                : torch::autograd::Edge();
}

bool contains(const Values& tensors, const at::Tensor& wanted) {
  return std::ranges::any_of(tensors, [&](const at::Tensor& tensor) {
    return tensor.is_same(wanted);
  });
}

// Called by autograd after it has added to a parameter's gradient.
struct Hook : torch::autograd::PostAccumulateGradHook {
  explicit Hook(std::shared_ptr<const GradientFound*> to)
      : listener(std::move(to)) {}

  void operator()(const at::Tensor& parameter) override {
    if (*listener != nullptr) {
      (**listener)(parameter);
    }
  }

  std::shared_ptr<const GradientFound*> listener;
};

// While it lives, the hooks call `found`.
class FoundScope {
 public:
  FoundScope(const GradientFound*& listener, const GradientFound& found)
      : listener_(listener) {
    listener_ = &found;
  }
  ~FoundScope() { listener_ = nullptr; }
  FoundScope(const FoundScope&) = delete;
  FoundScope& operator=(const FoundScope&) = delete;

 private:
  const GradientFound*& listener_;
};

}  // namespace

Stage::Stage(const Model& model, int first, int last)
    : network_(model.build(first, last)) {
  for (const auto& [name, parameter] : network_->trained_parameters()) {
    keep_accumulator(parameter);
  }
  for (const Network::RemoteTie& tie : network_->remote_ties()) {
    keep_accumulator(tie.local);
  }
}

void Stage::keep_accumulator(const at::Tensor& parameter) {
  if (parameter.requires_grad()) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameter));
  }
}

Values Stage::forward(Microbatch microbatch,
                      Values inputs,
                      const Moment& moment,
                      const std::optional<Goal>& goal) {
  InFlight kept;
  for (at::Tensor& input : inputs) {
    kept.entered.push_back(input.requires_grad()
                               ? NodePointer(make_node<Entry>())
                               : NodePointer());
    input = input.detach();
    if (kept.entered.back()) {
      torch::autograd::create_gradient_edge(input, kept.entered.back());
    }
  }
  if (goal) {
    const at::Tensor sum =
        sum_of(*goal->loss,
               network_->forward_in_parts(std::move(inputs), moment),
               goal->targets);
    kept.leaving = {edge_of(sum)};
    kept.seed = at::full_like(sum, goal->weight);
    keep(microbatch, std::move(kept), sum.item<double>());
    return {};
  }
  Values leaving = network_->forward(std::move(inputs), moment);
  for (at::Tensor& value : leaving) {
    kept.leaving.push_back(edge_of(value));
    const bool wanted = value.requires_grad();
    value = value.detach();
    value.set_requires_grad(wanted);
  }
  keep(microbatch, std::move(kept), {});
  return leaving;
}

void Stage::keep(Microbatch microbatch,
                 InFlight kept,
                 std::optional<double> loss) {
  const std::lock_guard lock(mutex_);
  in_flight_[microbatch] = std::move(kept);
  if (loss) {
    losses_[microbatch] = *loss;
  }
}

double Stage::loss(Microbatch microbatch) const {
  const std::lock_guard lock(mutex_);
  return losses_.at(microbatch);
}

// The seeds reach their places before any operation runs, so the gradients that
// later stages found are added first, as in the unsplit network.
Stage::Roots Stage::roots_of(const InFlight& kept, Values gradients) {
  Roots roots;
  for (TiedGradient& tied : tied_gradients_) {
    roots.edges.push_back(tied.parameter);
    roots.seeds.push_back(std::move(tied.gradient));
  }
  tied_gradients_.clear();
  for (size_t i = 0; i < kept.leaving.size(); ++i) {
    at::Tensor seed = kept.seed;
    if (!seed.defined()) {
      seed = std::move(gradients[i]);
    }
    if (kept.leaving[i].is_valid() && seed.defined()) {
      roots.edges.push_back(kept.leaving[i]);
      roots.seeds.push_back(std::move(seed));
    }
  }
  return roots;
}

Values Stage::backward(Microbatch microbatch,
                       Values gradients,
                       const GradientFound& found) {
  const InFlight kept = take(in_flight_, microbatch).value();
  Roots roots = roots_of(kept, std::move(gradients));
  if (roots.edges.empty()) {
    return Values(kept.entered.size());
  }
  if (split_) {
    OpenWeights open;
    Values entered = backward_split(kept, std::move(roots), open);
    const std::lock_guard lock(mutex_);
    open_[microbatch] = std::move(open);
    return entered;
  }
  return found ? backward_reporting(kept, std::move(roots), found)
               : backward_whole(kept, std::move(roots));
}

Values Stage::backward_reporting(const InFlight& kept,
                                 Roots roots,
                                 const GradientFound& found) {
  if (!listener_) {
    listener_ = std::make_shared<const GradientFound*>();
    for (const auto& [name, parameter] : network_->trained_parameters()) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameter, std::make_unique<Hook>(listener_));
    }
  }
  const FoundScope scope(*listener_, found);
  return backward_whole(kept, std::move(roots));
}

Values Stage::backward_whole(const InFlight& kept, Roots roots) {
  const auto exit = make_node<ExitNode>();
  const at::Tensor start = at::empty({0});
  exit->add_input_metadata(start);
  exit->set_next_edges(std::move(roots.edges));
  exit->gradients = std::move(roots.seeds);
  torch::autograd::Engine::get_default_engine().execute(
      {{exit, 0}}, {start}, false, false, true);
  Values entered;
  for (const NodePointer& node : kept.entered) {
    auto* entry = static_cast<Entry*>(node.get());
    entered.push_back(entry != nullptr ? std::move(entry->gradient)
                                       : at::Tensor());
  }
  return entered;
}

Values Stage::backward_split(const InFlight& kept,
                             Roots roots,
                             OpenWeights& open) {
  const SplittingBackward splitting(open.queue, at_once_);
  if (walked_.empty()) {
    Values entered = backward_whole(kept, std::move(roots));
    find_deferrable(open.queue);
    return entered;
  }
  EdgeSplit::Graph graph{.roots = std::move(roots.edges), .later = walked_};
  std::vector<size_t> places;  // of the inputs among what entered
  for (size_t i = 0; i < kept.entered.size(); ++i) {
    if (kept.entered[i]) {
      graph.inputs.emplace_back(kept.entered[i], 0);
      places.push_back(i);
    }
  }
  for (const auto& [name, parameter] : network_->trained_parameters()) {
    if (!contains(walked_, parameter)) {
      graph.at_once.push_back(parameter);
    }
  }
  for (const Network::RemoteTie& tie : network_->remote_ties()) {
    if (tie.local.requires_grad()) {
      graph.at_once.push_back(tie.local);
    }
  }
  open.others.emplace(std::move(graph));
  torch::autograd::variable_list found =
      open.others->backward_inputs(roots.seeds);
  Values entered(kept.entered.size());
  for (size_t i = 0; i < places.size(); ++i) {
    entered[places[i]] = in_own_memory(std::move(found[i]));
  }
  return entered;
}

// After the first backward of a stage it is known which parameters got their
// gradient from autograd. Vectors stay so: their gradients cost little. A
// matrix that got one part of it from the queue must get all of it from
// autograd, and this first time at once, or sums would change; the others are
// walked to from now on.
void Stage::find_deferrable(WeightQueue& queue) {
  if (std::exchange(found_deferrable_, true)) {
    return;
  }
  bool is_mixed = false;
  for (const auto& [name, parameter] : network_->trained_parameters()) {
    if (!parameter.grad().defined() || at_once_.has(parameter)) {
      continue;
    }
    if (queue.has(parameter)) {
      at_once_.add(parameter);
      is_mixed = true;
    } else if (parameter.dim() > 1) {
      walked_.push_back(parameter);
    }
  }
  if (is_mixed) {
    queue.run();
  }
}

void Stage::weights(Microbatch microbatch, const GradientFound& found) {
  std::optional<OpenWeights> open = take(open_, microbatch);
  if (!open) {
    return;
  }
  if (found) {
    report_others(open->queue, found);
  }
  open->queue.run(found);
  if (open->others) {
    open->others->backward_weights();
    if (found) {
      std::ranges::for_each(walked_, found);
    }
  }
}

template <class Kept>
std::optional<Kept> Stage::take(std::map<Microbatch, Kept>& from,
                                Microbatch microbatch) {
  const std::lock_guard lock(mutex_);
  auto node = from.extract(microbatch);
  return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
}

// Of parameters that do not wait for W.
void Stage::report_others(const WeightQueue& queue,
                          const GradientFound& found) {
  for (const auto& [name, parameter] : network_->trained_parameters()) {
    if (!queue.has(parameter) && !contains(walked_, parameter)) {
      found(parameter);
    }
  }
}

void Stage::add_tied_gradient(const at::Tensor& parameter,
                              at::Tensor gradient) {
  tied_gradients_.push_back({edge_of(parameter), std::move(gradient)});
}

void Stage::begin(bool split) {
  split_ = split;
  in_flight_.clear();
  open_.clear();
  losses_.clear();
}

}  // namespace cleave
