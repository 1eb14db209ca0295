#include "cleave/plan/measure/measured_plan.h"

#include <algorithm>

#include "cleave/error.h"
#include "cleave/plan/measure/device_specs.h"
#include "cleave/plan/measure/interpolate.h"
#include "cleave/plan/measure/profiler.h"

namespace cleave {
namespace {

// Numbers of microbatches per device that are tried.
constexpr std::int64_t kPerDevice[] = {1, 2, 4, 8};

PlanTask task_for(const Devices& devices,
                  const Training& training,
                  const PlanRequest& request,
                  const MessageSpeed& messages) {
  if (training.batch < 1) {
    fail("the samples of a step are not given", "Set Training::batch.");
  }
  return with_given_schedule({{.batch = training.batch,
                               .state_copies = state_copies(training.optimizer),
                               .clips = training.clip > 0,
                               .bucket = training.bucket,
                               .ranks_are_processes = are_processes(devices),
                               .messages = messages,
                               .given = {}},
                              request});
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

// The planner takes no more devices than these, unless asked for them.
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

}  // namespace

Plan plan(const Model& model,
          const Devices& devices,
          const Dataset& data,
          const Training& training,
          const PlanRequest& request,
          const MessageSpeed& messages) {
  Training part = training;
  part.batch = std::min(training.batch, data.size());
  const Batch sample =
      first_samples(data, std::max<std::int64_t>(1, part.batch));
  return plan(model, devices, sample, part, request, messages);
}

Plan plan(const Model& model,
          const Devices& devices,
          const Batch& sample,
          const Training& training,
          const PlanRequest& request,
          const MessageSpeed& messages) {
  const std::vector<DeviceSpec> specs = device_specs(devices);
  const PlanTask task = task_for(devices, training, request, messages);
  const int replicas = std::max(1, task.replicas);
  const auto all = std::max(1, static_cast<int>(devices.size()) / replicas);
  const int ranks =
      task.stages > 0
          ? std::min(task.stages, all)
          : std::clamp(with_cores_of_their_own(devices) / replicas, 1, all);
  const std::int64_t batch = batch_of_replica(task.batch, replicas);
  const Devices used(devices.begin(), devices.begin() + ranks);
  const std::vector<int> counts = task.microbatches > 0
                                      ? std::vector{task.microbatches}
                                      : counts_to_try(ranks, batch);
  const auto profile_with = [&](int count) {
    const Batch microbatch = part_of(sample, size_of_microbatch(batch, count));
    Profile measured = profile(model, microbatch, training, used);
    measured.ties = layer_ties(model);
    return measured;
  };
  const Profile small = profile_with(counts.back());
  const Profile large =
      counts.size() > 1 ? profile_with(counts.front()) : small;
  return plan_with_one_of(counts, small, large, specs, task);
}

}  // namespace cleave
