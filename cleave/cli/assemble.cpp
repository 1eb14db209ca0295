#include "cleave/cli/assemble.h"

#include <algorithm>
#include <utility>

#include "cleave/cli/launch/mpi_ranks.h"
#include "cleave/error.h"
#include "cleave/model/families/families.h"
#include "cleave/model/model.h"
#include "cleave/plan/measure/device_specs.h"
#include "cleave/plan/measure/measured_plan.h"
#include "cleave/plan/runner.h"

namespace cleave {
namespace {

// Biases and scales are not pulled to zero.
MakeOptimizer optimizer_of(const TrainConfig& train) {
  const ParameterGroup undecayed{.most_dimensions = 1, .weight_decay = 0};
  if (train.optimizer == "sgd") {
    return Sgd{.momentum = train.momentum,
               .weight_decay = train.weight_decay,
               .groups = {undecayed}};
  }
  return AdamW{.beta1 = train.beta1,
               .beta2 = train.beta2,
               .weight_decay = train.weight_decay,
               .groups = {undecayed}};
}

LearningRate learning_rate_of(const TrainConfig& train, std::int64_t steps) {
  if (train.lr_schedule == "cosine") {
    return warmup_cosine({.peak = train.lr,
                          .warmup = train.warmup,
                          .total = steps,
                          .floor = train.min_lr});
  }
  return constant_rate(train.lr, train.warmup);
}

}  // namespace

TrainAndTest data_of(const Config& config) {
  DataOptions options;
  options.synthetic = {
      .task = parse_synthetic_task(config.data.task),
      .seed = static_cast<std::uint64_t>(config.data.seed),
      .train_samples = config.data.samples,
      .test_samples = config.data.test_samples,
      .noise = config.data.noise,
      .features = config.data.features,
      .classes = config.model.classes > 0
                     ? static_cast<int>(config.model.classes)
                     : SyntheticOptions{}.classes,
      .vocabulary = static_cast<int>(config.model.vocabulary),
      .length = config.model.context,
  };
  options.folder = config.data.path;
  options.limit = config.data.limit;
  return load_data(config.data.source, options);
}

Model model_of(const Config& config, const Dataset& data) {
  const Batch one = first_samples(data, 1);
  const bool is_text = !one.inputs.is_floating_point();
  const std::string& family = config.model.family;
  if (is_text != (family == "gpt")) {
    fail("the model family " + family +
             " cannot read this data: " + data.description(),
         "Use gpt for tokens, and the other families for numbers and images.");
  }
  if (config.model.classes > 0 && data.classes() > config.model.classes) {
    fail("the data has " + std::to_string(data.classes()) +
             " classes, more than model.classes = " +
             std::to_string(config.model.classes),
         "Leave model.classes at 0 to take what the data has.");
  }
  const std::int64_t outputs = config.model.classes > 0 ? config.model.classes
                               : data.classes() > 0     ? data.classes()
                                                        : one.targets.size(-1);
  return fuse(make_model(
      family,
      {
          .input = {one.inputs.sizes().begin() + 1, one.inputs.sizes().end()},
          .outputs = outputs,
          .width = config.model.width,
          .depth = config.model.depth,
          .heads = config.model.heads,
          .context = config.model.context,
          .vocabulary = config.model.vocabulary,
          .dropout = config.model.dropout,
          .tied = config.model.tied,
          .head_parts = config.model.head_parts,
          .seed = static_cast<std::uint64_t>(config.model.seed),
      }));
}

DeviceOptions device_options_of(const Config& config) {
  return {.memory = config.devices.memory,
          .threads = static_cast<int>(config.devices.threads),
          .pin = config.devices.pin};
}

Loss loss_of(const Config& config, const Dataset& data) {
  const bool has_classes = data.classes() > 0;
  if (config.train.loss == "auto") {
    return has_classes ? cross_entropy() : mean_squared_error();
  }
  Loss loss = loss_named(config.train.loss);
  if (has_classes != (loss.name == cross_entropy().name)) {
    fail("the loss " + config.train.loss +
             " does not fit this data: " + data.description(),
         "Leave train.loss at \"auto\".");
  }
  return loss;
}

Devices devices_of(const Config& config) {
  const int ranks = mpi_ranks(config.devices.use).value_or(0);
  Devices devices = local_devices(
      ranks > 0 ? "cpu:" + std::to_string(ranks) : config.devices.use,
      device_options_of(config));
  for (Device& device : devices) {
    if (ranks > 0) {
      device.name.replace(0, device.name.find(':'), "mpi");
      device.process = true;
    }
  }
  return devices;
}

Training training_of(const Config& config,
                     const Dataset& data,
                     std::int64_t batch) {
  const TrainConfig& train = config.train;
  return {
      .loss = loss_of(config, data),
      .optimizer = optimizer_of(train),
      .learning_rate = learning_rate_of(
          train,
          planned_steps(data.size(), batch, fit_options_of(config, nullptr))),
      .precision = precision_named(train.precision),
      .clip = train.clip,
      .batch = batch,
      .seed = static_cast<std::uint64_t>(train.seed),
      .patience = config.devices.patience,
      .bucket = config.parallel.bucket,
  };
}

FitOptions fit_options_of(const Config& config, const Dataset* test) {
  return {.epochs = config.train.epochs,
          .steps = config.train.steps,
          .shuffle = config.data.shuffle,
          .test = test,
          .evaluate_every = config.train.evaluate_every,
          .traced = config.output.trace};
}

Plan plan_of(const Config& config,
             const Model& model,
             const Dataset& data,
             const Devices& devices,
             const MessageSpeed& messages) {
  if (!config.parallel.plan.empty()) {
    Plan saved = load_plan(config.parallel.plan);
    check_plan(saved, model.layer_names(), layer_ties(model));
    check_devices(saved, devices);
    return with_runner(std::move(saved),
                       {.ranks_are_processes = are_processes(devices)});
  }
  const std::int64_t batch = std::min(config.train.batch, data.size());
  return plan(
      model,
      devices,
      data,
      training_of(config, data, batch),
      {.stages = config.parallel.stages.value_or(0),
       .stages_per_device = config.parallel.stages_per_device.value_or(0),
       .replicas = config.parallel.replicas.value_or(0),
       .microbatches = config.parallel.microbatches.value_or(0),
       .schedule = config.parallel.schedule,
       .shard_states = shard_states_named(config.parallel.shard_states),
       .steals = config.parallel.stealing},
      messages);
}

}  // namespace cleave
