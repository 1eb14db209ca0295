#include "cleave/plan/measure/measured_plan.h"

#include <algorithm>
#include <cmath>

#include "cleave/plan/fastest_plan.h"
#include "cleave/plan/measure/caller.h"

namespace cleave {
namespace {

// Numbers of microbatches per device that are tried.
constexpr std::int64_t kPerDevice[] = {1, 2, 4, 8};

std::int64_t size_of_microbatch(std::int64_t batch, int microbatches) {
  return (batch + microbatches - 1) / microbatches;
}

// Of the replica that has most.
std::int64_t batch_of_replica(std::int64_t batch, int replicas) {
  const int all = std::max(1, replicas);
  return (batch + all - 1) / all;
}

// Ascending, none twice.
std::vector<int> counts_to_try(int ranks, std::int64_t batch) {
  std::vector<int> counts;
  for (const std::int64_t each : kPerDevice) {
    const int count = static_cast<int>(std::min(each * ranks, batch));
    if (counts.empty() || counts.back() != count) {
      counts.push_back(count);
    }
  }
  return counts;
}

// More devices than that are never taken, unless they are asked for.
int with_cores_of_their_own(const Devices& devices) {
  int found = 0;
  for (auto device = devices.begin(); device != devices.end(); ++device) {
    const Devices before(devices.begin(), device);
    found += count_on_cores_of(*device, before) == 0 ? 1 : 0;
  }
  return found;
}

// The first samples of it.
Batch part_of(const Batch& sample, std::int64_t size) {
  const std::int64_t most = std::min(size, sample.inputs.size(0));
  return {sample.inputs.narrow(0, 0, most), sample.targets.narrow(0, 0, most)};
}

// So much of the way from one to the other.
struct Mix {
  double share;

  double part(double one, double other) const {
    return std::clamp((1 - share) * one + share * other, 0.0, 1.0);
  }

  Seconds time(Seconds one, Seconds other) const {
    return std::max(Seconds{}, (1 - share) * one + share * other);
  }

  Bytes bytes(Bytes one, Bytes other) const {
    return Bytes{static_cast<std::int64_t>(
        std::ceil((1 - share) * static_cast<double>(one.value) +
                  share * static_cast<double>(other.value)))};
  }

  void move(LayerCost& one, const LayerCost& other) const {
    for (const auto part : kLayerTimes) {
      one.*part = time(one.*part, other.*part);
    }
    const auto move = [&](Bytes LayerCost::*part) {
      one.*part = bytes(one.*part, other.*part);
      if (part != &LayerCost::activations) {
        one.*part = std::max(Bytes{}, one.*part);
      }
    };
    std::ranges::for_each(kLayerSizes, move);
    std::ranges::for_each(kLayerNeeds, move);
  }
};

}  // namespace

Profile between(const Profile& small, const Profile& large, double samples) {
  const auto from = static_cast<double>(small.microbatch);
  const auto to = static_cast<double>(large.microbatch);
  const Mix mix{(samples - from) / (to - from)};
  Profile result = small;
  result.microbatch = std::llround(samples);
  for (const auto time : kOverheadTimes) {
    result.overhead.*time =
        mix.time(small.overhead.*time, large.overhead.*time);
  }
  for (const auto time : kForeignTimes) {
    result.foreign.*time = mix.time(small.foreign.*time, large.foreign.*time);
  }
  result.foreign.bytes = mix.bytes(small.foreign.bytes, large.foreign.bytes);
  for (const auto part : {&Profile::spread, &Profile::uneven}) {
    result.*part = mix.part(small.*part, large.*part);
  }
  for (size_t i = 0; i < result.layers.size(); ++i) {
    mix.move(result.layers[i], large.layers[i]);
  }
  const Seconds moving =
      mix.time(small.moving * turn_of(small), large.moving * turn_of(large));
  const Seconds turn = turn_of(result);
  result.moving = turn > Seconds{} ? std::min(1.0, moving / turn) : 0;
  return result;
}

Plan plan_with_one_of(const std::vector<int>& counts,
                      const Profile& small,
                      const Profile& large,
                      const std::vector<DeviceSpec>& devices,
                      PlanRequest request) {
  const std::int64_t batch = batch_of_replica(request.batch, request.replicas);
  return fastest_plan(counts, 1, [&](int count) {
    request.microbatches = count;
    const auto samples = static_cast<double>(size_of_microbatch(batch, count));
    return make_plan(small.microbatch == large.microbatch
                         ? small
                         : between(small, large, samples),
                     devices,
                     request);
  });
}

std::vector<DeviceSpec> device_specs(const Devices& devices) {
  std::vector<DeviceSpec> specs;
  for (const Device& device : devices) {
    const bool shares = count_on_cores_of(device, devices) > 1;
    specs.push_back({.name = device.name,
                     .core = shares ? device.cores.front() : -1,
                     .memory = device.memory});
  }
  return specs;
}

Plan plan(const Model& model,
          const Devices& devices,
          const Batch& sample,
          const ProfileOptions& options,
          const PlanRequest& wanted) {
  PlanRequest request = wanted;
  const int replicas = std::max(1, request.replicas);
  const auto all = std::max(1, static_cast<int>(devices.size()) / replicas);
  const int ranks =
      request.stages > 0
          ? std::min(request.stages, all)
          : std::clamp(with_cores_of_their_own(devices) / replicas, 1, all);
  const std::int64_t batch = batch_of_replica(request.batch, replicas);
  const Devices used(devices.begin(), devices.begin() + ranks);
  request.caller = time_of_caller(sample, request.batch, used);
  const std::vector<int> counts = request.microbatches > 0
                                      ? std::vector{request.microbatches}
                                      : counts_to_try(ranks, batch);
  const auto profile_with = [&](int count) {
    return profile(model,
                   part_of(sample, size_of_microbatch(batch, count)),
                   options,
                   used);
  };
  const Profile small = profile_with(counts.back());
  const Profile large =
      counts.size() > 1 ? profile_with(counts.front()) : small;
  return plan_with_one_of(counts, small, large, device_specs(devices), request);
}

}  // namespace cleave
