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

  Timing run(const Values& inputs, const Batch& batch, const Loss& loss) {
    constexpr Microbatch kOnly{0};
    Timing timing;
    stage_.begin(/*split=*/true);
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
    const Clock::time_point turn = Clock::now();
    const Values gradients = stage_.backward(kOnly, seeds);
    timing.backward = since(turn);
    const Bytes open = memory_->live();
    const Clock::time_point rest = Clock::now();
    stage_.weights(kOnly);
    timing.weight = since(rest);
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
               const Loss& loss) {
  trial.run(inputs, batch, loss);  // the first run also allocates and compiles
  std::vector<Timing> timings;
  const Clock::time_point start = Clock::now();
  while (timings.size() < kLeastRuns ||
         (timings.size() < kMostRuns && since(start).value < kEnoughSeconds)) {
    timings.push_back(trial.run(inputs, batch, loss));
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

void measure_layers(const Model& model,
                    const Batch& batch,
                    const ProfileOptions& options,
                    const std::shared_ptr<DeviceMemory>& memory,
                    Profile& result) {
  const std::vector<std::string> names = model.layer_names();
  std::map<std::string, Timing> known;
  Values values{batch.inputs};
  for (int layer = 0; layer < model.size(); ++layer) {
    Trial trial(model, layer, options, memory);
    const std::string kind = trial.kind(values);
    if (!known.contains(kind)) {
      known[kind] = measure(trial, values, batch, options.loss);
    }
    const Timing& timing = known.at(kind);
    const auto [outputs, activations] = trial.forward(values);
    result.layers.push_back({
        .name = names[layer],
        .forward = timing.forward,
        .backward = timing.backward,
        .weight = timing.weight,
        .update = timing.update,
        .parameters = trial.parameter_bytes(),
        .copies = trial.copied_bytes(),
        .activations = activations,
        .kept_for_weights = timing.kept_for_weights,
        .crossing = layer + 1 < model.size() ? bytes_of(outputs) : Bytes{},
    });
    values = as_leaves(outputs);
  }
  result.measured = static_cast<int>(known.size());
}

}  // namespace

Profile profile(const Model& model,
                const Batch& microbatch,
                const ProfileOptions& options,
                const Device& device) {
  Profile result{.model = model.name(),
                 .microbatch = microbatch.inputs.size(0),
                 .device = device.name};
  std::exception_ptr problem;
  // On a thread of its own, so that the caller keeps its cores.
  std::thread([&] {
    try {
      settle_on(device);
      const auto memory = std::make_shared<DeviceMemory>();
      const MemoryScope scope(memory);
      measure_layers(model, microbatch, options, memory, result);
    } catch (...) {
      problem = std::current_exception();
    }
  }).join();
  if (problem) {
    std::rethrow_exception(problem);
  }
  return result;
}

Profile profile_together(const Model& model,
                         const Batch& microbatch,
                         const ProfileOptions& options,
                         const Devices& devices) {
  std::vector<std::future<Profile>> running;
  for (const Device& device : devices) {
    running.push_back(std::async(std::launch::async, [&] {
      return profile(model, microbatch, options, device);
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

std::vector<DeviceSpec> device_specs(const Devices& devices) {
  std::vector<DeviceSpec> specs;
  for (const Device& device : devices) {
    specs.push_back({.name = device.name, .memory = device.memory});
  }
  return specs;
}

Plan plan(const Model& model,
          const Devices& devices,
          const Batch& sample,
          const ProfileOptions& options,
          PlanRequest request) {
  const auto all = static_cast<int>(devices.size());
  const int ranks = request.stages > 0 ? std::min(request.stages, all) : all;
  request.microbatches = microbatches_for(ranks, request);
  const std::int64_t size = std::min(
      (request.batch + request.microbatches - 1) / request.microbatches,
      sample.inputs.size(0));
  const Batch microbatch{sample.inputs.narrow(0, 0, size),
                         sample.targets.narrow(0, 0, size)};
  const Devices used(devices.begin(), devices.begin() + ranks);
  return make_plan(profile_together(model, microbatch, options, used),
                   device_specs(devices),
                   request);
}

}  // namespace cleave
