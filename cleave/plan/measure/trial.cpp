#include "cleave/plan/measure/trial.h"

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

at::Tensor copy_outside(const at::Tensor& value) {
  const MemoryScope outside(nullptr);
  return copies_of({value}).front();
}

Seconds since(Clock::time_point start) {
  return {std::chrono::duration<double>(Clock::now() - start).count()};
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
  stage_.begin(/*split=*/true);
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

// What backward needs includes the gradients that it is given.
void Trial::take_turn(const Values& inputs,
                      const Batch& batch,
                      const Loss& loss) {
  Values outputs = forward(kOnly, copies_of(inputs), batch, loss).values;
  const Bytes before = memory_->live();
  Values gradients = ones_for(outputs);
  const Bytes given = memory_->live() - before;
  outputs.clear();
  backward(kOnly, std::move(gradients));
  bytes_.backward_need += given;
  weights(kOnly);
}

Needs Trial::needs(const Values& inputs, const Batch& batch, const Loss& loss) {
  const auto turn = [&] {
    take_turn(inputs, batch, loss);
    return bytes_;
  };
  stage_.begin(/*split=*/false);
  Needs found{.first_whole = turn().backward_need};
  found.whole = turn().backward_need;
  drop_gradients();
  stage_.begin(/*split=*/true);
  found.first_weight = turn().weight_need;
  found.turn = turn();
  return found;
}

TimedValues Trial::forward(Microbatch microbatch,
                           Values inputs,
                           const Batch& batch,
                           const Loss& loss) {
  memory_->reset_peak();
  const Clock::time_point start = Clock::now();
  Values outputs = stage_.forward(
      microbatch,
      std::move(inputs),
      Moment{0, 1, {first_}},
      is_last_ ? std::optional(Goal{&loss, batch.targets}) : std::nullopt);
  const Seconds taken = since(start);
  bytes_.working = memory_->peak() - memory_->live();
  return {std::move(outputs), taken};
}

TimedValues Trial::backward(Microbatch microbatch, Values gradients) {
  const Bytes before = memory_->live();
  memory_->reset_peak();
  const Clock::time_point start = Clock::now();
  gradients = stage_.backward(microbatch, std::move(gradients));
  const Seconds taken = since(start);
  bytes_.backward_need = memory_->peak() - before;
  return {std::move(gradients), taken};
}

Seconds Trial::weights(Microbatch microbatch) {
  const Bytes open = memory_->live();
  memory_->reset_peak();
  const Clock::time_point start = Clock::now();
  stage_.weights(microbatch);
  const Seconds taken = since(start);
  bytes_.weight_need = memory_->peak() - open;
  bytes_.kept_for_weights = std::max(open - memory_->live(), Bytes{0});
  return taken;
}

Seconds Trial::update() {
  const Clock::time_point start = Clock::now();
  if (update_) {
    update_();
    stage_.network().renew_copies();
  }
  drop_gradients();
  return since(start);
}

void Trial::drop_gradients() {
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = at::Tensor();
  }
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

Bytes Trial::count_bytes() const {
  return {static_cast<std::int64_t>(parameters_.size() * sizeof(float))};
}

Bytes Trial::freed_by_dropping(at::Tensor& value) const {
  const Bytes before = memory_->live();
  value = at::Tensor();
  return before - memory_->live();
}

}  // namespace cleave
