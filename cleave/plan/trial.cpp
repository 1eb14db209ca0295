#include "cleave/plan/trial.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <sstream>

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Microbatch kOnly{0};

// Makes a value look as if a layer before had made it: its memory is held by
// those who read it, and by nothing else.
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

// In the memory of the thread's device, if it has one.
Values copies_of(const Values& values) {
  Values copies;
  for (const at::Tensor& value : values) {
    at::Tensor copy = value.detach().clone();
    copy.set_requires_grad(value.requires_grad());
    copies.push_back(copy);
  }
  return copies;
}

at::Tensor copy_outside(const at::Tensor& value) {
  const MemoryScope outside(nullptr);
  return copies_of({value}).front();
}

Seconds since(Clock::time_point start) {
  return {std::chrono::duration<double>(Clock::now() - start).count()};
}

}  // namespace

Trial::Trial(const Model& model,
             int first,
             int end,
             const ProfileOptions& options,
             std::shared_ptr<DeviceMemory> memory)
    : stage_(model, first, end),
      first_(first),
      is_last_(end == model.size()),
      memory_(std::move(memory)) {
  stage_.network().compute_in(options.precision);
  for (const auto& [name, parameter] : stage_.network().trained_parameters()) {
    parameters_.push_back(parameter);
  }
  if (options.make_update && !parameters_.empty()) {
    update_ = options.make_update(parameters_);
  }
}

std::string Trial::kind(const Values& inputs) const {
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

Footprint Trial::footprint(const Values& inputs) {
  const at::Tensor history = at::empty({}).requires_grad_();
  Values given = copies_of(inputs);
  for (at::Tensor& value : given) {
    if (value.requires_grad()) {
      value = Given::apply(history, value.detach());
    }
  }
  const Bytes before = memory_->live() - copied_bytes();
  Values outputs = stage_.network().forward(given, Moment{0, 1, {first_}});
  Footprint found{.made = memory_->live() - copied_bytes() - before};
  std::vector<torch::autograd::Edge> graph;
  for (const at::Tensor& output : outputs) {
    graph.push_back(torch::autograd::impl::gradient_edge(output));
    const auto same = std::ranges::find_if(
        given, [&](const auto& input) { return input.is_alias_of(output); });
    found.outputs.push_back(
        {.value = copy_outside(output),
         .input = same == given.end()
                      ? -1
                      : static_cast<int>(same - given.begin())});
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    found.outputs[i].loose = freed_by_dropping(outputs[i]);
  }
  for (at::Tensor& value : given) {
    found.keeps.push_back(freed_by_dropping(value) == Bytes{});
  }
  return found;
}

Needs Trial::needs(const Values& inputs, const Batch& batch, const Loss& loss) {
  const auto whole = [&] {
    stage_.begin(/*split=*/false);
    run_forward(inputs, batch, loss);
    backward();
    return bytes_.backward_need;
  };
  Needs found{.first_whole = whole()};
  found.whole = whole();
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = at::Tensor();
  }
  const auto split = [&] {
    forward(inputs, batch, loss);
    backward();
    weights();
    return bytes_;
  };
  found.first_weight = split().weight_need;
  found.turn = split();
  return found;
}

void Trial::forward(const Values& inputs,
                    const Batch& batch,
                    const Loss& loss) {
  stage_.begin(/*split=*/true);
  run_forward(inputs, batch, loss);
}

void Trial::run_forward(const Values& inputs,
                        const Batch& batch,
                        const Loss& loss) {
  gradients_.clear();
  Values given = copies_of(inputs);
  memory_->reset_peak();
  const Clock::time_point start = Clock::now();
  Values outputs = stage_.forward(
      kOnly,
      std::move(given),
      Moment{0, 1, {first_}},
      is_last_ ? std::optional(Goal{&loss, batch.targets}) : std::nullopt);
  timing_.forward = since(start);
  const Bytes before = memory_->live();
  bytes_.working = memory_->peak() - before;
  for (const at::Tensor& value : outputs) {
    gradients_.push_back(value.requires_grad() ? at::ones_like(value)
                                               : at::Tensor());
  }
  seeds_ = memory_->live() - before;
  outputs.clear();
}

void Trial::backward() {
  const Bytes kept = memory_->live() - seeds_;
  memory_->reset_peak();
  const Clock::time_point start = Clock::now();
  gradients_ = stage_.backward(kOnly, std::move(gradients_));
  timing_.backward = since(start);
  bytes_.backward_need = memory_->peak() - kept;
  gradients_.clear();
}

// From the second turn on, gradients add up, as those of most microbatches do.
void Trial::weights() {
  const Bytes open = memory_->live();
  memory_->reset_peak();
  const Clock::time_point start = Clock::now();
  stage_.weights(kOnly);
  timing_.weight = since(start);
  bytes_.weight_need = memory_->peak() - open;
  bytes_.kept_for_weights = std::max(open - memory_->live(), Bytes{0});
}

void Trial::update() {
  const Clock::time_point start = Clock::now();
  if (update_) {
    update_();
    stage_.network().renew_copies();
  }
  timing_.update = since(start);
}

Bytes Trial::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : stage_.network().state()) {
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  for (const Network::RemoteTie& tie : stage_.network().remote_ties()) {
    bytes += static_cast<std::int64_t>(tie.local.nbytes());
  }
  return {bytes};
}

Bytes Trial::freed_by_dropping(at::Tensor& value) const {
  const Bytes before = memory_->live();
  value = at::Tensor();
  return before - memory_->live();
}

}  // namespace cleave
