#include "cleave/plan/profiler.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <sstream>
#include <thread>

#include "cleave/comm/memory.h"
#include "cleave/error.h"
#include "cleave/model/stage.h"

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLeastRuns = 5;
constexpr int kMostRuns = 50;
constexpr double kEnoughSeconds = 0.05;  // per layer; short layers run oftener

// Beyond that, a device's caches hold nothing of a layer's last turn.
constexpr std::int64_t kMostCached = std::int64_t{64} << 20;
constexpr std::int64_t kCacheLine = 64;

// Puts into the caches what is not the layer's.
class CacheFiller {
 public:
  explicit CacheFiller(Bytes bytes) : memory_(bytes.value, 1) {}

  void fill() {
    for (size_t i = 0; i < memory_.size(); i += kCacheLine) {
      sum_ = sum_ + memory_[i];
    }
  }

 private:
  std::vector<unsigned char> memory_;
  volatile unsigned sum_ = 0;  // so that compilers let it be read
};

// What one run of a layer took, in time and memory.
struct Timing {
  Seconds forward;
  Seconds backward;
  Seconds weight;
  Seconds update;
  Bytes kept_for_weights;
  Bytes working;
};

// A value that leaves a layer.
struct Output {
  at::Tensor value;  // a copy, in no device's memory
  int input = -1;    // which one it is, passed on
  Bytes loose;       // a new one: what is free again when nobody else keeps it
};

// What a layer's forward leaves in memory.
struct Footprint {
  std::vector<Output> outputs;
  std::vector<bool> keeps;  // by input: for its backward
  Bytes made;  // its new outputs, and what else it keeps for backward
};

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

Seconds since(Clock::time_point start) {
  return {std::chrono::duration<double>(Clock::now() - start).count()};
}

Seconds median_of(std::vector<Timing>& timings, Seconds Timing::*part) {
  const auto middle = timings.begin() + std::ssize(timings) / 2;
  std::nth_element(
      timings.begin(),
      middle,
      timings.end(),
      [&](const Timing& a, const Timing& b) { return a.*part < b.*part; });
  return (*middle).*part;
}

// One layer on trial: runs it as a stage of its own.
class Trial {
 public:
  Trial(const Model& model,
        int layer,
        const ProfileOptions& options,
        std::shared_ptr<DeviceMemory> memory)
      : stage_(model, layer, layer + 1),
        layer_(layer),
        is_last_(layer + 1 == model.size()),
        memory_(std::move(memory)) {
    stage_.network().compute_in(options.precision);
    for (const auto& [name, parameter] :
         stage_.network().trained_parameters()) {
      parameters_.push_back(parameter);
    }
    if (options.make_update && !parameters_.empty()) {
      update_ = options.make_update(parameters_);
    }
  }

  // Equal for layers that must cost the same.
  std::string kind(const Values& inputs) const {
    std::ostringstream text;
    for (const auto& module :
         stage_.network().modules(/*include_self=*/false)) {
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

  // Runs it once in training, forward only.
  Footprint forward(const Values& inputs) {
    const at::Tensor history = at::empty({}).requires_grad_();
    Values given = copies_of(inputs);
    for (at::Tensor& value : given) {
      if (value.requires_grad()) {
        value = Given::apply(history, value.detach());
      }
    }
    const Bytes before = memory_->live();
    Values outputs = stage_.network().forward(given, Moment{0, 1, {layer_}});
    Footprint found{.made = memory_->live() - before};
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

  Timing run(const Values& inputs,
             const Batch& batch,
             const Loss& loss,
             CacheFiller& others) {
    Timing timing;
    stage_.begin(/*split=*/true);
    Values values = copies_of(inputs);
    others.fill();
    memory_->reset_peak();
    const Clock::time_point start = Clock::now();
    values = stage_.forward(
        kOnly,
        values,
        Moment{0, 1, {layer_}},
        is_last_ ? std::optional(Goal{&loss, batch.targets}) : std::nullopt);
    timing.forward = since(start);
    timing.working = memory_->peak() - memory_->live();
    const Bytes kept = memory_->live();
    for (at::Tensor& value : values) {
      value = value.requires_grad() ? at::ones_like(value) : at::Tensor();
    }
    others.fill();
    const Clock::time_point turn = Clock::now();
    values = stage_.backward(kOnly, values);
    timing.backward = since(turn);
    timing.working = std::max(timing.working, memory_->peak() - kept);
    values.clear();
    weights(timing, others);
    others.fill();
    update(timing);
    return timing;
  }

  Bytes copied_bytes() const { return stage_.network().copied(); }

  Bytes parameter_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : stage_.network().state()) {
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
    for (const Network::RemoteTie& tie : stage_.network().remote_ties()) {
      bytes += static_cast<std::int64_t>(tie.local.nbytes());
    }
    return {bytes};
  }

 private:
  static constexpr Microbatch kOnly{0};

  static at::Tensor copy_outside(const at::Tensor& value) {
    const MemoryScope outside(nullptr);
    return copies_of({value}).front();
  }

  Bytes freed_by_dropping(at::Tensor& value) const {
    const Bytes before = memory_->live();
    value = at::Tensor();
    return before - memory_->live();
  }

  // From the second run on, gradients add up, as those of most microbatches do.
  void weights(Timing& timing, CacheFiller& others) {
    const Bytes open = memory_->live();
    others.fill();
    memory_->reset_peak();
    const Clock::time_point start = Clock::now();
    stage_.weights(kOnly);
    timing.weight = since(start);
    timing.working = std::max(timing.working, memory_->peak() - open);
    timing.kept_for_weights = std::max(open - memory_->live(), Bytes{0});
  }

  void update(Timing& timing) {
    const Clock::time_point start = Clock::now();
    if (update_) {
      update_();
      stage_.network().renew_copies();
    }
    timing.update = since(start);
  }

  Stage stage_;
  int layer_;
  bool is_last_;
  std::shared_ptr<DeviceMemory> memory_;
  std::vector<at::Tensor> parameters_;
  std::function<void()> update_;
};

Timing measure(Trial& trial,
               const Values& inputs,
               const Batch& batch,
               const Loss& loss,
               CacheFiller& others) {
  // The first run also allocates and compiles.
  trial.run(inputs, batch, loss, others);
  std::vector<Timing> timings;
  const Clock::time_point start = Clock::now();
  while (timings.size() < kLeastRuns ||
         (timings.size() < kMostRuns && since(start).value < kEnoughSeconds)) {
    timings.push_back(trial.run(inputs, batch, loss, others));
  }
  return {median_of(timings, &Timing::forward),
          median_of(timings, &Timing::backward),
          median_of(timings, &Timing::weight),
          median_of(timings, &Timing::update),
          timings.back().kept_for_weights,
          timings.back().working};
}

Bytes bytes_of(const Values& values) {
  Bytes total;
  for (const at::Tensor& value : values) {
    total += Bytes{static_cast<std::int64_t>(value.nbytes())};
  }
  return total;
}

// Layers that must cost the same.
struct Kind {
  int first = 0;  // of them
  Values inputs;
  std::vector<int> layers;
};

// What is free again behind a layer: inputs that nobody keeps and that go no
// further. `loose`: of every value, what no layer keeps so far; before the
// layer, and then behind it.
Bytes let_go_of(const Footprint& found, std::vector<Bytes>& loose) {
  for (size_t i = 0; i < loose.size(); ++i) {
    loose[i] = found.keeps[i] ? Bytes{} : loose[i];
  }
  std::vector<Bytes> behind;
  for (const Output& output : found.outputs) {
    behind.push_back(output.input < 0
                         ? output.loose
                         : std::exchange(loose[output.input], Bytes{}));
  }
  Bytes let_go;
  for (const Bytes bytes : loose) {
    let_go += bytes;
  }
  loose = std::move(behind);
  return let_go;
}

// Runs the model once, layer by layer: all sizes, and what kinds there are.
std::map<std::string, Kind> measure_sizes(
    const Model& model,
    const Batch& batch,
    const ProfileOptions& options,
    const std::shared_ptr<DeviceMemory>& memory,
    Profile& result) {
  const std::vector<std::string> names = model.layer_names();
  std::map<std::string, Kind> kinds;
  Values values{batch.inputs};
  std::vector<Bytes> loose(1);  // of every value: what no layer keeps so far
  for (int layer = 0; layer < model.size(); ++layer) {
    Trial trial(model, layer, options, memory);
    Kind& kind = kinds[trial.kind(values)];
    if (kind.layers.empty()) {
      kind.first = layer;
      kind.inputs = values;
    }
    kind.layers.push_back(layer);
    const Footprint found = trial.forward(values);
    const Bytes let_go = let_go_of(found, loose);
    values.clear();
    for (const Output& output : found.outputs) {
      values.push_back(output.value);
    }
    result.layers.push_back({
        .name = names[layer],
        .parameters = trial.parameter_bytes(),
        .copies = trial.copied_bytes(),
        .activations = found.made - let_go,
        .let_go = let_go,
        .crossing = layer + 1 < model.size() ? bytes_of(values) : Bytes{},
    });
  }
  return kinds;
}

// What a device uses of memory until a layer's turn comes again: its share of
// all weights and of a microbatch's activations.
Bytes used_between_turns(const Profile& profile, std::int64_t devices) {
  Bytes all;
  for (const LayerCost& layer : profile.layers) {
    all += layer.parameters + layer.activations;
  }
  return {std::min(all.value / devices, kMostCached)};
}

void measure_layers(const Model& model,
                    const Batch& batch,
                    const ProfileOptions& options,
                    std::int64_t devices,
                    Profile& result) {
  const auto memory = std::make_shared<DeviceMemory>();
  const MemoryScope scope(memory);
  const std::map<std::string, Kind> kinds =
      measure_sizes(model, batch, options, memory, result);
  CacheFiller others(used_between_turns(result, devices));
  for (const auto& [name, kind] : kinds) {
    Trial trial(model, kind.first, options, memory);
    const Timing timing =
        measure(trial, kind.inputs, batch, options.loss, others);
    for (const int layer : kind.layers) {
      LayerCost& cost = result.layers[layer];
      cost.forward = timing.forward;
      cost.backward = timing.backward;
      cost.weight = timing.weight;
      cost.update = timing.update;
      cost.kept_for_weights = timing.kept_for_weights;
      cost.working = timing.working;
    }
  }
  result.measured = static_cast<int>(kinds.size());
}

// On one of `devices` devices that measure at the same time.
Profile profile_on(const Model& model,
                   const Batch& microbatch,
                   const ProfileOptions& options,
                   const Device& device,
                   std::int64_t devices) {
  Profile result{.model = model.name(),
                 .microbatch = microbatch.inputs.size(0),
                 .device = device.name};
  std::exception_ptr problem;
  // On a thread of its own, so that the caller keeps its cores.
  std::thread([&] {
    try {
      settle_on(device);
      measure_layers(model, microbatch, options, devices, result);
    } catch (...) {
      problem = std::current_exception();
    }
  }).join();
  if (problem) {
    std::rethrow_exception(problem);
  }
  return result;
}

}  // namespace

Profile profile(const Model& model,
                const Batch& microbatch,
                const ProfileOptions& options,
                const Devices& devices) {
  std::vector<std::future<Profile>> running;
  for (const Device& device : devices) {
    running.push_back(std::async(std::launch::async, [&] {
      return profile_on(
          model, microbatch, options, device, std::ssize(devices));
    }));
  }
  Profile mean = running.front().get();
  const auto share = 1.0 / static_cast<double>(devices.size());
  const auto add = [&](const Profile& found, double weight_of_mean) {
    for (size_t i = 0; i < mean.layers.size(); ++i) {
      for (const auto time : {&LayerCost::forward,
                              &LayerCost::backward,
                              &LayerCost::weight,
                              &LayerCost::update}) {
        Seconds& own = mean.layers[i].*time;
        own = weight_of_mean * own + share * (found.layers[i].*time);
      }
    }
  };
  add(Profile(mean), 0);
  for (size_t other = 1; other < running.size(); ++other) {
    add(running[other].get(), 1);
  }
  return mean;
}

}  // namespace cleave
