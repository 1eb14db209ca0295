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
#include "cleave/model/network.h"

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

// One layer on trial: runs it forward and backward as a stage would.
class Trial {
 public:
  Trial(const Model& model, int layer)
      : network_(model.build(layer, layer + 1)),
        layer_(layer),
        is_last_(layer + 1 == model.size()) {}

  // Equal for layers that must cost the same.
  std::string kind(const Values& inputs) const {
    std::ostringstream text;
    for (const auto& module : network_->modules(/*include_self=*/false)) {
      text << module->name() << ' ';
      module->pretty_print(text);
    }
    for (const auto& parameter : network_->parameters()) {
      text << parameter.sizes() << parameter.requires_grad();
    }
    for (const at::Tensor& input : inputs) {
      text << input.sizes() << input.dtype() << input.requires_grad();
    }
    text << (is_last_ ? "and the loss" : "");
    return text.str();
  }

  Values forward(const Values& inputs) {
    return network_->forward(inputs, Moment{0, 1, {layer_}});
  }

  Timing run(const Values& inputs, const Batch& batch, const Loss& loss) {
    Timing timing;
    const Clock::time_point start = Clock::now();
    Values roots = forward(inputs);
    if (is_last_) {
      roots = {loss.sum(std::move(roots.at(0)), batch.targets)};
    }
    timing.forward = since(start);
    std::erase_if(roots, [](const at::Tensor& root) {
      return !root.requires_grad() || root.is_leaf();
    });
    Values seeds;
    for (const at::Tensor& root : roots) {
      seeds.push_back(at::ones_like(root));
    }
    const Clock::time_point turn = Clock::now();
    if (!roots.empty()) {
      torch::autograd::backward(roots, seeds);
    }
    timing.backward = since(turn);
    return timing;
  }

  Bytes parameter_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : network_->state()) {
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
    for (const Network::RemoteTie& tie : network_->remote_ties()) {
      bytes += static_cast<std::int64_t>(tie.local.nbytes());
    }
    return {bytes};
  }

 private:
  std::shared_ptr<Network> network_;
  int layer_;
  bool is_last_;
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
          median_of(timings, &Timing::backward)};
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
                    const Loss& loss,
                    const std::shared_ptr<DeviceMemory>& memory,
                    Profile& result) {
  const std::vector<std::string> names = model.layer_names();
  std::map<std::string, Timing> known;
  Values values{batch.inputs};
  for (int layer = 0; layer < model.size(); ++layer) {
    Trial trial(model, layer);
    auto timing = known.find(trial.kind(values));
    if (timing == known.end()) {
      timing =
          known.emplace(trial.kind(values), measure(trial, values, batch, loss))
              .first;
    }
    const Bytes before = memory->live();
    const Values outputs = trial.forward(values);
    result.layers.push_back({
        .name = names[layer],
        .forward = timing->second.forward,
        .backward = timing->second.backward,
        .parameters = trial.parameter_bytes(),
        .activations = memory->live() - before,
        .crossing = layer + 1 < model.size() ? bytes_of(outputs) : Bytes{},
    });
    values = as_leaves(outputs);
  }
  result.measured = static_cast<int>(known.size());
}

}  // namespace

Profile profile(const Model& model,
                const Batch& microbatch,
                const Loss& loss,
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
      measure_layers(model, microbatch, loss, memory, result);
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
                         const Loss& loss,
                         const Devices& devices) {
  std::vector<std::future<Profile>> running;
  for (const Device& device : devices) {
    running.push_back(std::async(std::launch::async, [&] {
      return profile(model, microbatch, loss, device);
    }));
  }
  Profile mean = running.front().get();
  const auto share = 1.0 / static_cast<double>(devices.size());
  for (LayerCost& layer : mean.layers) {
    layer.forward = share * layer.forward;
    layer.backward = share * layer.backward;
  }
  for (size_t other = 1; other < running.size(); ++other) {
    const Profile found = running[other].get();
    for (size_t i = 0; i < mean.layers.size(); ++i) {
      mean.layers[i].forward += share * found.layers[i].forward;
      mean.layers[i].backward += share * found.layers[i].backward;
    }
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
          const Loss& loss,
          PlanRequest request) {
  request.microbatches = microbatches_for(
      request.stages > 0 ? request.stages : static_cast<int>(devices.size()),
      request);
  const std::int64_t size = std::min(
      (request.batch + request.microbatches - 1) / request.microbatches,
      sample.inputs.size(0));
  const Batch microbatch{sample.inputs.narrow(0, 0, size),
                         sample.targets.narrow(0, 0, size)};
  const Devices used(devices.begin(),
                     request.stages > 0 && request.stages < std::ssize(devices)
                         ? devices.begin() + request.stages
                         : devices.end());
  return make_plan(profile_together(model, microbatch, loss, used),
                   device_specs(devices),
                   request);
}

}  // namespace cleave
