#include "cleave/plan/measure/layer_timing.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>

#include "cleave/device/clock.h"

namespace cleave {
namespace {

constexpr int kMicrobatches = 4;  // of a step

// So many steps at least. More until they have taken long enough: the medians
// then hide what else the machine does for a moment.
constexpr int kLeastSteps = 3;
constexpr int kManySteps = 20;
constexpr Seconds kLongEnough{2};

struct Identity : torch::nn::Module {
  static at::Tensor forward(const at::Tensor& value) { return value; }
};

bool are_alike(const Values& some, const Values& others) {
  return std::ranges::equal(
      some, others, [](const at::Tensor& one, const at::Tensor& other) {
        return one.defined() == other.defined() &&
               (!one.defined() ||
                (one.sizes() == other.sizes() && one.dtype() == other.dtype() &&
                 one.requires_grad() == other.requires_grad()));
      });
}

// The values, where they are like those wanted; copies of the latter otherwise.
Values as_wanted(Values values, const Values& wanted) {
  return are_alike(values, wanted) ? std::move(values) : copies_of(wanted);
}

}  // namespace

// The last layer of a model is timed with its loss, so there are two.
LayerTiming::LayerTiming(const ProbeSetup& setup)
    : setup_(setup), empty_("empty") {
  empty_.add<Identity>("identity");
  empty_.add<Identity>("last");
  add(empty_, 0, kEmpty, {at::zeros({1}).requires_grad_()});
}

void LayerTiming::add(const Model& model,
                      int layer,
                      int kind,
                      const Values& inputs) {
  layers_.push_back(
      {.kind = kind,
       .probe = std::make_unique<LayerProbe>(model, layer, setup_),
       .inputs = inputs,
       .seeds = {},
       .times = {}});
}

void LayerTiming::take_steps() {
  take_step();  // also allocates and compiles
  for (TimedLayer& layer : layers_) {
    layer.times = {};
  }
  const Seconds end = steady_now() + kLongEnough;
  for (int steps = 0;
       steps < kLeastSteps || (steps < kManySteps && steady_now() < end);
       ++steps) {
    take_step();
  }
}

// Two microbatches are in flight, as on the first of two devices.
void LayerTiming::take_step() {
  forward({0});
  for (int i = 1; i < kMicrobatches; ++i) {
    forward({i});
    backward({i - 1});
    weights({i - 1});
  }
  backward({kMicrobatches - 1});
  weights({kMicrobatches - 1});
  update();
}

void LayerTiming::forward(Microbatch microbatch) {
  Values values;
  for (TimedLayer& layer : layers_) {
    values = as_wanted(std::move(values), layer.inputs);
    const Seconds start = steady_now();
    values = layer.probe->forward(microbatch, std::move(values));
    layer.times.forward.push_back(steady_now() - start);
    if (layer.seeds.empty()) {
      layer.seeds = ones_for(values);
    }
  }
}

void LayerTiming::backward(Microbatch microbatch) {
  Values gradients;
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    gradients = as_wanted(std::move(gradients), layer->seeds);
    const Seconds start = steady_now();
    gradients = layer->probe->backward(microbatch, std::move(gradients));
    layer->times.backward.push_back(steady_now() - start);
  }
}

void LayerTiming::weights(Microbatch microbatch) {
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    const Seconds start = steady_now();
    layer->probe->weights(microbatch);
    layer->times.weight.push_back(steady_now() - start);
  }
}

void LayerTiming::update() {
  for (TimedLayer& layer : layers_) {
    const Seconds start = steady_now();
    layer.probe->update();
    layer.times.update.push_back(steady_now() - start);
  }
}

std::optional<Seconds> LayerTiming::median(
    int kind, std::vector<Seconds> TimeSamples::*part) const {
  std::vector<Seconds> times;
  for (const TimedLayer& layer : layers_) {
    if (layer.kind == kind) {
      const std::vector<Seconds>& own = layer.times.*part;
      times.insert(times.end(), own.begin(), own.end());
    }
  }
  if (times.empty()) {
    return std::nullopt;
  }
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::ranges::nth_element(times, middle);
  return *middle;
}

}  // namespace cleave
