#include "cleave/plan/profiler.h"

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

// What one run of a layer took.
struct Timing {
  Seconds forward;
  Seconds backward;
  Seconds weight;
  Seconds update;
  Bytes kept_for_weights;
};

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

  // Its results, and how much stays in memory for backward.
  std::pair<Values, Bytes> forward(const Values& inputs) {
    const Bytes before = memory_->live();
    const Values outputs =
        stage_.network().forward(inputs, Moment{0, 1, {layer_}});
    return {outputs, memory_->live() - before};
  }

  Timing run(const Values& inputs,
             const Batch& batch,
             const Loss& loss,
             CacheFiller& others) {
    constexpr Microbatch kOnly{0};
    Timing timing;
    stage_.begin(/*split=*/true);
    others.fill();
    const Clock::time_point start = Clock::now();
    const Values outputs = stage_.forward(
        kOnly,
        inputs,
        Moment{0, 1, {layer_}},
        is_last_ ? std::optional(Goal{&loss, batch.targets}) : std::nullopt);
    timing.forward = since(start);
    Values seeds;
    for (const at::Tensor& output : outputs) {
      seeds.push_back(output.requires_grad() ? at::ones_like(output)
                                             : at::Tensor());
    }
    others.fill();
    const Clock::time_point turn = Clock::now();
    const Values gradients = stage_.backward(kOnly, seeds);
    timing.backward = since(turn);
    const Bytes open = memory_->live();
    others.fill();
    const Clock::time_point rest = Clock::now();
    stage_.weights(kOnly);
    timing.weight = since(rest);
    others.fill();
    finish(timing, open);
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
  // Times the update, and finds what W let go of: what was live before it and
  // is not after, besides the gradients it made.
  void finish(Timing& timing, Bytes before_weights) {
    Bytes gradients;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        gradients +=
            Bytes{static_cast<std::int64_t>(parameter.grad().nbytes())};
      }
    }
    const Bytes let_go = before_weights + gradients - memory_->live();
    timing.kept_for_weights = std::max(let_go, Bytes{0});
    const Clock::time_point start = Clock::now();
    if (update_) {
      update_();
      stage_.network().renew_copies();
    }
    timing.update = since(start);
    for (at::Tensor& parameter : parameters_) {
      parameter.mutable_grad() = at::Tensor();
    }
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
          timings.back().kept_for_weights};
}

// What crossed the cut, as the next layer's stage would take it.
Values as_leaves(const Values& values) {
  Values leaves;
  for (const at::Tensor& value : values) {
    at::Tensor leaf = value.detach();
    leaf.set_requires_grad(value.requires_grad());
    leaves.push_back(leaf);
  }
  return leaves;
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
  for (int layer = 0; layer < model.size(); ++layer) {
    Trial trial(model, layer, options, memory);
    Kind& kind = kinds[trial.kind(values)];
    if (kind.layers.empty()) {
      kind.first = layer;
      kind.inputs = values;
    }
    kind.layers.push_back(layer);
    const auto [outputs, activations] = trial.forward(values);
    result.layers.push_back({
        .name = names[layer],
        .parameters = trial.parameter_bytes(),
        .copies = trial.copied_bytes(),
        .activations = activations,
        .crossing = layer + 1 < model.size() ? bytes_of(outputs) : Bytes{},
    });
    values = as_leaves(outputs);
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
