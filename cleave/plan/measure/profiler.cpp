#include "cleave/plan/measure/profiler.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "cleave/comm/thread_world.h"
#include "cleave/device/memory.h"
#include "cleave/plan/measure/rehearsal.h"
#include "cleave/plan/measure/trial.h"

namespace cleave {
namespace {

// Caches hold no more than that, and what is measured need not be more at once.
constexpr Bytes kMostCached{std::int64_t{64} << 20};
constexpr Bytes kMostAtOnce{2 * kMostCached.value};
constexpr std::size_t kMostRehearsed = 64;  // more would say nothing new

Bytes sum_of(const std::vector<Bytes>& all) {
  return std::accumulate(all.begin(), all.end(), Bytes{});
}

// Layers that must cost the same.
struct Kind {
  int first = 0;           // of them
  bool with_next = false;  // each runs as one with the layer behind it
  Values inputs;
  Needs needs;
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
  for (const TrialOutput& output : found.outputs) {
    behind.push_back(output.input < 0
                         ? output.loose
                         : std::exchange(loose[output.input], Bytes{}));
  }
  loose.swap(behind);
  return sum_of(behind);
}

// Adds a layer to its kind. `next`: the one behind it, if there is one.
Kind& add_to_kind(int layer,
                  const Trial& trial,
                  const Trial* next,
                  const Values& inputs,
                  std::map<std::string, Kind>& kinds) {
  const bool with_next = next != nullptr && trial.runs_as_one_with(*next);
  Kind& kind = kinds[trial.kind(inputs) + (with_next ? "and the next" : "")];
  if (kind.layers.empty()) {
    kind.first = layer;
    kind.with_next = with_next;
    kind.inputs = inputs;
  }
  kind.layers.push_back(layer);
  return kind;
}

// All sizes but of what crosses a cut behind the layer.
LayerCost sizes_of(const std::string& name,
                   const Trial& trial,
                   const Needs& needs,
                   Bytes activations) {
  return {.name = name,
          .parameters = trial.parameter_bytes(),
          .copies = trial.copied_bytes() + trial.count_bytes(),
          .activations = activations,
          .kept_for_weights = needs.turn.kept_for_weights,
          .working = needs.turn.working,
          .backward_need = needs.turn.backward_need,
          .whole_need = needs.whole,
          .first_whole_need = needs.first_whole,
          .weight_need = needs.turn.weight_need,
          .first_weight_need = needs.first_weight};
}

// Runs the model once, layer by layer: all sizes, and what kinds there are.
std::map<std::string, Kind> measure_sizes(
    const Model& model,
    const Batch& batch,
    const ProfileOptions& options,
    const std::shared_ptr<DeviceMemory>& memory,
    Profile& result) {
  const std::vector<std::string> names = model.layer_names();
  const auto on_trial = [&](int layer) {
    return std::make_unique<Trial>(model, layer, layer + 1, options, memory);
  };
  std::map<std::string, Kind> kinds;
  Values values{batch.inputs};
  std::vector<Bytes> loose(1);  // of every value: what no layer keeps so far
  std::unique_ptr<Trial> next = on_trial(0);
  for (int layer = 0; layer < model.size(); ++layer) {
    const std::unique_ptr<Trial> trial = std::move(next);
    const bool is_last = layer + 1 == model.size();
    next = is_last ? nullptr : on_trial(layer + 1);
    Kind& kind = add_to_kind(layer, *trial, next.get(), values, kinds);
    const Footprint found = trial->footprint(values);
    if (kind.first == layer) {
      kind.needs = trial->needs(values, batch, options.loss);
    }
    const Bytes let_go = let_go_of(found, loose);
    values.clear();
    for (const TrialOutput& output : found.outputs) {
      values.push_back(output.value);
    }
    LayerCost& cost = result.layers.emplace_back(
        sizes_of(names[layer], *trial, kind.needs, found.made - let_go));
    cost.crossing = is_last ? Bytes{} : bytes_of(values);
    cost.loose = is_last ? Bytes{} : sum_of(loose);
  }
  return kinds;
}

// What a layer uses of memory in its turn.
Bytes used_by(const LayerCost& layer) {
  return layer.parameters + std::max(Bytes{}, layer.activations);
}

// The layers to rehearse, in their order: one of every kind, and of the first
// ones as many as fill a device's share of the model, or its caches.
std::set<int> layers_to_rehearse(const std::map<std::string, Kind>& kinds,
                                 const Profile& profile,
                                 std::int64_t devices) {
  std::set<int> chosen;
  Bytes used;
  Bytes all;
  for (const auto& [name, kind] : kinds) {
    chosen.insert(kind.first);
    used += used_by(profile.layers[kind.first]);
  }
  for (const LayerCost& layer : profile.layers) {
    all += used_by(layer);
  }
  const Bytes share = std::min(Bytes{all.value / devices}, kMostCached);
  for (int layer = 0; layer < std::ssize(profile.layers) && used < share &&
                      chosen.size() < kMostRehearsed;
       ++layer) {
    if (chosen.insert(layer).second) {
      used += used_by(profile.layers[layer]);
    }
  }
  return chosen;
}

// The same, in runs of layers that are in memory together.
std::vector<std::vector<int>> runs_of(const std::set<int>& layers,
                                      const Profile& profile) {
  std::vector<std::vector<int>> runs;
  Bytes used;
  for (const int layer : layers) {
    used += used_by(profile.layers[layer]);
    if (runs.empty() || used > kMostAtOnce) {
      runs.emplace_back();
      used = used_by(profile.layers[layer]);
    }
    runs.back().push_back(layer);
  }
  return runs;
}

// What the layer itself takes of what a stage of it alone took.
void set_times(const Timing& found, const Timing& stage, LayerCost& cost) {
  cost.forward = std::max(Seconds{}, found.forward - stage.forward);
  cost.backward = std::max(Seconds{}, found.backward - stage.backward);
  cost.weight = std::max(Seconds{}, found.weight - stage.weight);
  cost.update = std::max(Seconds{}, found.update - stage.update);
}

// Layers that run as one with the next were timed with it: that one's own times
// are not theirs.
void take_off_next(const std::map<std::string, Kind>& kinds, Profile& profile) {
  for (const auto& [name, kind] : kinds) {
    for (const int layer : kind.layers) {
      for (const auto time : kLayerTimes) {
        Seconds& both = profile.layers[layer].*time;
        both = kind.with_next
                   ? std::max(Seconds{}, both - profile.layers[layer + 1].*time)
                   : both;
      }
    }
  }
}

// The kind of every layer.
using KindOf = std::map<int, const Kind*>;

void add_found(const Rehearsed& found, const KindOf& kind_of, Profile& result) {
  result.spread = std::max(result.spread, found.spread);
  result.moving = std::max(result.moving, found.moving);
  if (found.foreign.bytes > result.foreign.bytes) {
    result.foreign = found.foreign;
  }
  const Timing& nothing = found.times.at(Rehearsal::kNothing);
  result.overhead = {nothing.forward + found.beside.forward,
                     nothing.backward + found.beside.backward,
                     nothing.weight + found.beside.weight,
                     nothing.update + found.beside.update};
  for (const auto& [first, timing] : found.times) {
    if (first != Rehearsal::kNothing) {
      for (const int layer : kind_of.at(first)->layers) {
        set_times(timing, nothing, result.layers[layer]);
      }
    }
  }
}

// On one of the devices, which measure at the same time. `devices`: those that
// the model is for, also if not all of them measure.
Profile measure(const Model& model,
                const Batch& batch,
                const ProfileOptions& options,
                std::int64_t devices,
                Seat& seat,
                Transport& others) {
  Profile result{.model = model.name(), .microbatch = batch.inputs.size(0)};
  const auto memory = std::make_shared<DeviceMemory>();
  const MemoryScope scope(memory);
  const std::map<std::string, Kind> kinds =
      measure_sizes(model, batch, options, memory, result);
  KindOf kind_of;
  for (const auto& [name, kind] : kinds) {
    for (const int layer : kind.layers) {
      kind_of[layer] = &kind;
    }
  }
  // On the last device of a pipeline there is one, on the first as many as
  // there are devices; more make little difference.
  const int in_flight = devices > 1 ? 2 : 1;
  for (const std::vector<int>& run :
       runs_of(layers_to_rehearse(kinds, result, devices), result)) {
    Rehearsal rehearsal(model, batch, options, in_flight, memory);
    for (const int layer : run) {
      const Kind& kind = *kind_of[layer];
      const int end = layer + (kind.with_next ? 2 : 1);
      rehearsal.add(layer, end, kind.first, kind.inputs);
    }
    add_found(rehearsal.run(seat, others), kind_of, result);
  }
  take_off_next(kinds, result);
  result.measured = static_cast<int>(kinds.size());
  return result;
}

// By what share they differ from their mean at most, mostly: those of a
// Disturbance have this standard deviation.
double unevenness_of(const std::vector<Profile>& found, const Profile& mean) {
  const Seconds turn = turn_of(mean);
  double squares = 0;
  for (const Profile& one : found) {
    const double share = turn > Seconds{} ? turn_of(one) / turn - 1 : 0;
    squares += share * share / static_cast<double>(found.size());
  }
  return std::min(1.0, std::sqrt(6 * squares));
}

// The means of their times and spreads; all else is the first one's.
Profile mean_of(const std::vector<Profile>& found) {
  Profile mean = found.front();
  const auto set_mean = [&](Seconds& of_mean, const auto& time_of) {
    of_mean = {};
    for (const Profile& one : found) {
      of_mean += time_of(one) / static_cast<double>(found.size());
    }
  };
  for (size_t i = 0; i < mean.layers.size(); ++i) {
    for (const auto time : kLayerTimes) {
      set_mean(mean.layers[i].*time,
               [&](const Profile& one) { return one.layers[i].*time; });
    }
  }
  for (const auto time : kOverheadTimes) {
    set_mean(mean.overhead.*time,
             [&](const Profile& one) { return one.overhead.*time; });
  }
  for (const auto time : kForeignTimes) {
    set_mean(mean.foreign.*time,
             [&](const Profile& one) { return one.foreign.*time; });
  }
  for (const auto share : {&Profile::spread, &Profile::moving}) {
    mean.*share = 0;
    for (const Profile& one : found) {
      mean.*share += one.*share / static_cast<double>(found.size());
    }
  }
  mean.uneven = unevenness_of(found, mean);
  return mean;
}

// Those of this machine, of those that share a core the first.
Devices that_can_measure(const Devices& devices) {
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
                const ProfileOptions& options,
                const Devices& all) {
  const Devices devices = that_can_measure(all);
  Rotation rotation(devices);
  ThreadWorld world(static_cast<int>(devices.size()), Rotation::kPatience);
  std::vector<Profile> found(devices.size());
  std::vector<std::jthread> threads;  // so that the caller keeps its cores
  threads.reserve(devices.size());
  for (int device = 0; device < std::ssize(devices); ++device) {
    threads.emplace_back([&, device] {
      try {
        Seat seat(rotation, device);
        const auto others = world.connect({device});
        found[device] =
            measure(model, microbatch, options, std::ssize(all), seat, *others);
        found[device].device = devices[device].name;
      } catch (...) {
        world.abort(std::current_exception());
      }
    });
  }
  threads.clear();  // waits for them
  if (const std::exception_ptr failure = world.failure()) {
    std::rethrow_exception(failure);
  }
  return mean_of(found);
}

}  // namespace cleave
