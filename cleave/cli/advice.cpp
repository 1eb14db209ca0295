#include "cleave/cli/advice.h"

#include <algorithm>

#include "cleave/cli/assemble.h"
#include "cleave/counted.h"
#include "cleave/mesh.h"
#include "cleave/model/kernels/product_speed.h"
#include "cleave/plan/measure/profiler.h"

namespace cleave {
namespace {

// Steps that take longer have work enough for several threads.
constexpr Seconds kSmallStep{0.2};

// Whether it was measured for this run, and small enough to measure once more.
bool was_measured_small(const Config& config, const Plan& plan) {
  return config.parallel.plan.empty() && plan.prediction &&
         plan.prediction->step <= kSmallStep;
}

// How much faster one thread has to be: both are measured for a moment only.
constexpr double kWorthSaying = 1.2;

std::string precision_advice(Precision precision, const Devices& devices) {
  if (precision == Precision::fp32) {
    return "";
  }
  const std::string warning = bf16_warning(measure_products(devices.front()));
  return warning.empty() ? "" : warning + "\n";
}

std::string sharing_advice(const Devices& devices) {
  const auto cores = static_cast<std::int64_t>(this_machine().cores.size());
  const bool share = std::ranges::any_of(devices, [&](const Device& device) {
    return count_on_cores_of(device, devices) > 1;
  });
  return share ? "Devices share cores and take turns: there " +
                     std::string(cores == 1 ? "is " : "are ") +
                     counted(cores, "core") +
                     ", and more devices than that gain nothing.\n"
               : "";
}

std::string threads_advice(const Config& config,
                           const Model& model,
                           const Dataset& data,
                           const Devices& devices,
                           const Plan& plan) {
  const Device& first = devices.front();
  // Processes share the machine with others that would have to measure too.
  if (first.threads < 2 || config.devices.threads > 0 || first.process ||
      !was_measured_small(config, plan)) {
    return "";
  }
  const std::int64_t samples =
      plan.batch / plan.replicas / plan.schedule.microbatches;
  const Batch microbatch =
      first_samples(data, std::max<std::int64_t>(1, samples));
  const Training training = training_of(config, data, plan.batch);
  const auto time_with = [&](int threads) {
    Device device = first;
    device.threads = threads;
    return microbatch_time(profile(model, microbatch, training, {device}));
  };
  const Seconds several = time_with(first.threads);
  const Seconds one = time_with(1);
  return several > kWorthSaying * one
             ? "Layers as small as these are faster with one thread per device "
               "(a microbatch takes " +
                   to_text(one) + " instead of " + to_text(several) +
                   "): set devices.threads = 1, and use more devices.\n"
             : "";
}

}  // namespace

std::string advice(const Config& config,
                   const Model& model,
                   const Dataset& data,
                   const Devices& devices,
                   const Plan& plan) {
  const Devices used(devices.begin(), devices.begin() + mesh_of(plan).ranks());
  return precision_advice(precision_named(config.train.precision), devices) +
         sharing_advice(used) +
         threads_advice(config, model, data, devices, plan);
}

}  // namespace cleave
