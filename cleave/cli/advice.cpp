#include "cleave/cli/advice.h"

#include <algorithm>

#include "cleave/cli/assemble.h"
#include "cleave/counted.h"
#include "cleave/model/kernels/product_speed.h"
#include "cleave/plan/measure/profiler.h"
#include "cleave/plan/plan_schedule.h"

namespace cleave {
namespace {

// Steps that take longer have work enough for several threads.
constexpr Seconds kSmallStep{0.2};

// Whether it was measured for this run, and small enough to measure once more.
bool was_measured_small(const Config& config, const Plan& plan) {
  return config.parallel.plan.empty() && plan.step <= kSmallStep;
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

std::string sharing_advice(const Plan& plan) {
  const auto cores = static_cast<std::int64_t>(this_machine().cores.size());
  return share_cores(plan) ? "Devices share cores and take turns: there " +
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
  const bool is_process = first.name.starts_with("mpi:");
  if (first.threads < 2 || config.devices.threads > 0 || is_process ||
      !was_measured_small(config, plan)) {
    return "";
  }
  const std::int64_t samples = plan.batch / plan.replicas / plan.microbatches;
  const Batch microbatch =
      first_samples(data, std::max<std::int64_t>(1, samples));
  const auto time_with = [&](int threads) {
    Device device = first;
    device.threads = threads;
    return turn_of(
        profile(model, microbatch, profile_options_of(config, data), {device}));
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
  return precision_advice(precision_named(config.train.precision), devices) +
         sharing_advice(plan) +
         threads_advice(config, model, data, devices, plan);
}

}  // namespace cleave
