#include "cleave/plan/measure/profiler.h"

#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "cleave/device/clock.h"
#include "cleave/plan/measure/layer_probe.h"
#include "cleave/plan/measure/layer_timing.h"

namespace cleave {
namespace {

// Caches hold no more than the first. Layers are timed in groups that need no
// more memory than the second.
constexpr Bytes kMostCached{std::int64_t{64} << 20};
constexpr Bytes kMostInGroup{2 * kMostCached.value};

// A device that has measured stays busy until the others have, but no longer.
constexpr Seconds kMostBusy{600};

// Where the profiler finds a time, and where it goes.
struct TimedPart {
  std::vector<Seconds> TimeSamples::*samples;
  Seconds LayerCost::*layer;
  Seconds StageOverhead::*overhead;
};

constexpr TimedPart kTimedParts[] = {
    {&TimeSamples::forward, &LayerCost::forward, &StageOverhead::forward},
    {&TimeSamples::backward, &LayerCost::backward, &StageOverhead::backward},
    {&TimeSamples::weight, &LayerCost::weight, &StageOverhead::weight},
    {&TimeSamples::update, &LayerCost::update, &StageOverhead::update}};

// Layers that must cost the same: the first of them, and what it is given.
struct Kind {
  int first = 0;
  Values inputs;
};

using Kinds = std::vector<Kind>;  // by layer

Bytes sum_of(const std::vector<Bytes>& all) {
  return std::accumulate(all.begin(), all.end(), Bytes{});
}

// The bytes that are free again behind a layer: inputs that nothing keeps and
// that go no further. `loose`: of every value, what no layer keeps so far;
// before the layer, and then behind it.
Bytes freed_behind(const Footprint& found, std::vector<Bytes>& loose) {
  for (size_t i = 0; i < loose.size(); ++i) {
    loose[i] = found.keeps[i] ? Bytes{} : loose[i];
  }
  std::vector<Bytes> behind;
  for (const LayerOutput& output : found.outputs) {
    behind.push_back(output.input < 0
                         ? output.loose
                         : std::exchange(loose[output.input], Bytes{}));
  }
  loose.swap(behind);
  return sum_of(behind);
}

// Runs the model once, layer by layer, and fills in all sizes.
Kinds measure_sizes(const Model& model,
                    const ProbeSetup& setup,
                    std::vector<LayerCost>& layers) {
  std::map<std::string, int> known;
  Kinds kinds;
  Values values{setup.batch.inputs};
  std::vector<Bytes> loose(1);
  for (const std::string& name : model.layer_names()) {
    const int layer = static_cast<int>(layers.size());
    LayerProbe probe(model, layer, setup);
    const int first = known.emplace(probe.kind(values), layer).first->second;
    const Footprint found = probe.footprint(values);
    LayerCost cost;
    if (first == layer) {
      kinds.push_back({layer, values});
      probe.measure_needs(values, cost);
    } else {
      kinds.push_back(kinds[first]);
      cost = layers[first];
    }
    values.clear();
    for (const LayerOutput& output : found.outputs) {
      values.push_back(output.value);
    }
    const bool is_last = layer + 1 == model.size();
    cost.name = name;
    cost.parameters = probe.parameter_bytes();
    cost.copies = probe.copied_bytes();
    cost.activations = found.made - freed_behind(found, loose);
    cost.crossing = is_last ? Bytes{} : bytes_of(values);
    cost.loose = is_last ? Bytes{} : sum_of(loose);
    layers.push_back(cost);
  }
  return kinds;
}

// The layers to time: one of every kind, and of the first ones as many as fill
// a device's share of the model, or its caches. In groups that are in memory
// together.
std::vector<std::vector<int>> groups_to_time(
    const std::vector<LayerCost>& layers,
    const Kinds& kinds,
    std::int64_t devices) {
  const auto used_by = [](const LayerCost& layer) {
    return layer.parameters + std::max(Bytes{}, layer.activations);
  };
  Bytes all;
  for (const LayerCost& layer : layers) {
    all += used_by(layer);
  }
  const Bytes share = std::min(Bytes{all.value / devices}, kMostCached);
  std::vector<std::vector<int>> groups;
  Bytes chosen;
  Bytes in_group;
  for (int layer = 0; layer < std::ssize(layers); ++layer) {
    if (kinds[layer].first != layer && chosen >= share) {
      continue;
    }
    const Bytes used = used_by(layers[layer]);
    chosen += used;
    in_group += used;
    if (groups.empty() || in_group > kMostInGroup) {
      groups.emplace_back();
      in_group = used;
    }
    groups.back().push_back(layer);
  }
  return groups;
}

// Sets the times of all layers of the kinds that were timed.
void set_times(const LayerTiming& timing, const Kinds& kinds, Profile& result) {
  for (const TimedPart& part : kTimedParts) {
    const Seconds empty = *timing.median(LayerTiming::kEmpty, part.samples);
    result.overhead.*part.overhead = empty;
    for (size_t layer = 0; layer < kinds.size(); ++layer) {
      if (const auto time = timing.median(kinds[layer].first, part.samples)) {
        result.layers[layer].*part.layer = std::max(Seconds{}, *time - empty);
      }
    }
  }
}

// On one of the devices. `devices`: how many the model is for. `measuring`: how
// many still measure.
Profile measure(const Model& model,
                const Batch& batch,
                const Training& training,
                std::int64_t devices,
                std::atomic<int>& measuring) {
  Profile result{.model = model.name(), .microbatch = batch.inputs.size(0)};
  const auto memory = std::make_shared<DeviceMemory>();
  const MemoryScope scope(memory);
  const ProbeSetup setup{batch, training, memory};
  const Kinds kinds = measure_sizes(model, setup, result.layers);
  std::unique_ptr<LayerTiming> timing;
  for (const auto& group : groups_to_time(result.layers, kinds, devices)) {
    timing.reset();  // only one group is in memory
    timing = std::make_unique<LayerTiming>(setup);
    for (const int layer : group) {
      const Kind& kind = kinds[layer];
      timing->add(model, layer, kind.first, kind.inputs);
    }
    timing->take_steps();
    set_times(*timing, kinds, result);
  }
  for (int layer = 0; layer < std::ssize(kinds); ++layer) {
    result.measured += kinds[layer].first == layer ? 1 : 0;
  }
  --measuring;
  const Seconds end = steady_now() + kMostBusy;
  while (measuring > 0 && steady_now() < end) {
    timing->take_step();
  }
  return result;
}

// The means of their times; all else is the first one's.
Profile mean_of(const std::vector<Profile>& found) {
  Profile mean = found.front();
  const auto mean_over = [&](const auto& time_of) {
    Seconds sum;
    for (const Profile& one : found) {
      sum += time_of(one);
    }
    return sum / static_cast<double>(found.size());
  };
  for (const TimedPart& part : kTimedParts) {
    mean.overhead.*part.overhead = mean_over(
        [&](const Profile& one) { return one.overhead.*part.overhead; });
    for (size_t i = 0; i < mean.layers.size(); ++i) {
      mean.layers[i].*part.layer = mean_over(
          [&](const Profile& one) { return one.layers[i].*part.layer; });
    }
  }
  return mean;
}

// Those of this machine; of those that share a core the first.
Devices devices_that_measure(const Devices& devices) {
  Devices found;
  for (const Device& device : devices) {
    if (count_on_cores_of(device, found) == 0 && !device.elsewhere) {
      found.push_back(device);
    }
  }
  return found;
}

}  // namespace

Profile profile(const Model& model,
                const Batch& microbatch,
                const Training& training,
                const Devices& all) {
  const Devices devices = devices_that_measure(all);
  std::atomic<int> measuring = static_cast<int>(devices.size());
  std::vector<Profile> found(devices.size());
  std::vector<std::exception_ptr> failures(devices.size());
  std::vector<std::jthread> threads;  // the calling thread keeps its cores
  threads.reserve(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        bind_to(devices[i]);
        found[i] =
            measure(model, microbatch, training, std::ssize(all), measuring);
        found[i].device = devices[i].name;
      } catch (...) {
        failures[i] = std::current_exception();
        --measuring;  // the others need not wait for it
      }
    });
  }
  threads.clear();  // waits for them
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
  return mean_of(found);
}

}  // namespace cleave
