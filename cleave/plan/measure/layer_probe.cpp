#include "cleave/plan/measure/layer_probe.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <sstream>

namespace cleave {
namespace {

// Weights stay as they are, or nearly so.
constexpr double kSmallRate = 1e-6;

constexpr Microbatch kOnly{0};

// Makes a value look like the output of an earlier layer: only its readers hold
// its memory.
struct Given : torch::autograd::Function<Given> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& /*history*/,
                            const at::Tensor& value) {
    return value.detach();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* /*context*/,
      const torch::autograd::variable_list& /*gradients*/) {
    return {at::Tensor(), at::Tensor()};
  }
};

at::Tensor copy_outside(const at::Tensor& value) {
  const MemoryScope outside(nullptr);
  return copies_of({value}).front();
}

}  // namespace

Values ones_for(const Values& values) {
  Values ones;
  for (const at::Tensor& value : values) {
    ones.push_back(value.requires_grad() ? at::ones_like(value) : at::Tensor());
  }
  return ones;
}

Values copies_of(const Values& values) {
  Values copies;
  for (const at::Tensor& value : values) {
    at::Tensor& copy = copies.emplace_back();
    if (value.defined()) {
      copy = value.detach().clone();
      copy.set_requires_grad(value.requires_grad());
    }
  }
  return copies;
}

Bytes bytes_of(const Values& values) {
  Bytes total;
  for (const at::Tensor& value : values) {
    total += Bytes{static_cast<std::int64_t>(value.nbytes())};
  }
  return total;
}

LayerProbe::LayerProbe(const Model& model, int layer, const ProbeSetup& setup)
    : setup_(setup),
      stage_(model, layer, layer + 1),
      layer_(layer),
      is_last_(layer + 1 == model.size()) {
  stage_.network().compute_in(setup.training.precision);
  stage_.begin(/*split=*/true);
  for (const auto& [name, parameter] : stage_.network().trained_parameters()) {
    parameters_.push_back(parameter);
  }
  if (!parameters_.empty()) {
    optimizer_ = setup.training.optimizer(
        whole_parameters(stage_.network().trained_parameters()));
  }
}

std::string LayerProbe::kind(const Values& inputs) const {
  std::ostringstream text;
  for (const auto& module : stage_.network().modules(/*include_self=*/false)) {
    text << module->name() << ' ';
    module->pretty_print(text);
  }
  for (const auto& parameter : stage_.network().parameters()) {
    text << parameter.sizes() << parameter.requires_grad();
  }
  for (const at::Tensor& input : inputs) {
    text << input.sizes() << input.dtype() << input.requires_grad();
  }
  text << (is_last_ ? "and the loss" : "");
  return text.str();
}

Footprint LayerProbe::footprint(const Values& inputs) {
  const at::Tensor history = at::empty({}).requires_grad_();
  Values given = copies_of(inputs);
  for (at::Tensor& value : given) {
    if (value.requires_grad()) {
      value = Given::apply(history, value.detach());
    }
  }
  const Bytes before = live_without_copies();
  Values outputs = stage_.network().forward(given, Moment{0, 1, {layer_}});
  Footprint found{.made = live_without_copies() - before};
  std::vector<torch::autograd::Edge> graph;  // keeps what backward needs
  for (const at::Tensor& output : outputs) {
    graph.push_back(torch::autograd::impl::gradient_edge(output));
    const auto same = std::ranges::find_if(
        given, [&](const auto& input) { return input.is_alias_of(output); });
    const bool is_new = same == given.end();
    found.outputs.push_back(
        {.value = copy_outside(output),
         .input = is_new ? -1 : static_cast<int>(same - given.begin())});
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    found.outputs[i].loose = freed_by_dropping(outputs[i]);
  }
  for (at::Tensor& value : given) {
    found.keeps.push_back(freed_by_dropping(value) == Bytes{});
  }
  return found;
}

// The first pass in a mode makes the gradients and learns which of them can
// wait. The second is like all later ones, and replaces what the first found.
void LayerProbe::measure_needs(const Values& inputs, LayerCost& cost) {
  stage_.begin(/*split=*/false);
  measure_pass(inputs, cost);
  measure_pass(inputs, cost);
  cost.whole_need = cost.backward_need;
  drop_gradients();
  stage_.begin(/*split=*/true);
  measure_pass(inputs, cost);
  measure_pass(inputs, cost);
}

// What backward needs includes the gradients that it is given.
void LayerProbe::measure_pass(const Values& inputs, LayerCost& cost) {
  DeviceMemory& memory = *setup_.memory;
  memory.reset_peak();
  Values outputs = forward(kOnly, copies_of(inputs));
  cost.working = memory.peak() - memory.live();

  const Bytes kept = memory.live();
  Values gradients = ones_for(outputs);
  const Bytes given = memory.live() - kept;
  outputs.clear();
  const Bytes before = memory.live() - given;
  memory.reset_peak();
  backward(kOnly, std::move(gradients));
  cost.backward_need = memory.peak() - before;

  const Bytes open = memory.live();
  memory.reset_peak();
  weights(kOnly);
  cost.weight_need = memory.peak() - open;
  cost.kept_for_weights = std::max(open - memory.live(), Bytes{0});
}

Values LayerProbe::forward(Microbatch microbatch, Values inputs) {
  std::optional<Goal> goal;
  if (is_last_) {
    goal = Goal{&setup_.training.loss, setup_.batch.targets};
  }
  return stage_.forward(
      microbatch, std::move(inputs), Moment{0, 1, {layer_}}, goal);
}

Values LayerProbe::backward(Microbatch microbatch, Values gradients) {
  return stage_.backward(microbatch, std::move(gradients));
}

void LayerProbe::weights(Microbatch microbatch) {
  stage_.weights(microbatch);
}

void LayerProbe::update() {
  if (optimizer_) {
    optimizer_->step(kSmallRate);
    stage_.network().renew_copies();
  }
  drop_gradients();
}

void LayerProbe::drop_gradients() {
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = at::Tensor();
  }
}

Bytes LayerProbe::parameter_bytes() const {
  Bytes bytes;
  for (const auto& [name, tensor] : stage_.network().state()) {
    bytes += bytes_of({tensor});
  }
  for (const Network::RemoteTie& tie : stage_.network().remote_ties()) {
    bytes += bytes_of({tie.local});
  }
  return bytes;
}

Bytes LayerProbe::copied_bytes() const {
  const Bytes counters{
      static_cast<std::int64_t>(parameters_.size() * sizeof(float))};
  return stage_.network().copied() + counters;
}

Bytes LayerProbe::live_without_copies() const {
  return setup_.memory->live() - stage_.network().copied();
}

Bytes LayerProbe::freed_by_dropping(at::Tensor& value) const {
  const Bytes before = setup_.memory->live();
  value = at::Tensor();
  return before - setup_.memory->live();
}

}  // namespace cleave
