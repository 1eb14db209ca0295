#include <array>
#include <span>
#include <string_view>

#include "cleave/cli/config/schema.h"
#include "cleave/plan/plan.h"
#include "cleave/policies.h"
#include "cleave/schedule/generators/registry.h"

// To add a key: a member in config.h that holds its default, and a row here.
namespace cleave {
namespace {

// The slot of a member of a section. Seconds are numbers to the user.
template <auto section, auto member>
Slot slot(Config& config) {
  auto& value = config.*section.*member;
  if constexpr (requires { Slot(&value); }) {
    return &value;
  } else {
    return &value.value;
  }
}

constexpr Limits at_least(double least) {
  return {.least = least};
}

constexpr Limits between(double least, double most) {
  return {.least = least, .most = most};
}

constexpr Limits one_of(std::span<const std::string_view> words) {
  return {.words = words};
}

constexpr Limits kPositive{.least = 0, .above_least = true};
constexpr Limits kBelowOne{.least = 0, .most = 1, .below_most = true};

template <std::size_t count>
using Choices = std::array<std::string_view, count>;

constexpr Choices<4> kFamilies{"mlp", "convnet", "resnet", "gpt"};
constexpr Choices<2> kSources{"synthetic", "fashion-mnist"};
constexpr Choices<4> kTasks{"classification", "regression", "tokens", "images"};
constexpr auto kScheduleNames = [] {
  Choices<kSchedules.size() + 1> names{kAutoSchedule};
  for (std::size_t i = 0; i < kSchedules.size(); ++i) {
    names[i + 1] = kSchedules[i].name;
  }
  return names;
}();
constexpr Choices<2> kOptimizers{"adamw", "sgd"};
constexpr Choices<2> kLrSchedules{"constant", "cosine"};
constexpr Choices<3> kLosses{"auto", "cross_entropy", "mse"};

constexpr std::array kSections{
    KeySection{"model", "the network"},
    KeySection{"data", "what it learns from"},
    KeySection{"devices", "where it runs"},
    KeySection{"parallel", "how it is split over the devices"},
    KeySection{"train", "how it learns"},
    KeySection{"output", "where the results go"},
};

constexpr std::array kKeys{
    Key{"model.family",
        slot<&Config::model, &ModelConfig::family>,
        "the kind of network",
        one_of(kFamilies)},
    Key{"model.seed",
        slot<&Config::model, &ModelConfig::seed>,
        "seed of the initial weights",
        at_least(0)},
    Key{"model.width",
        slot<&Config::model, &ModelConfig::width>,
        "hidden features (mlp), first channels (convnet, resnet), embedding "
        "size (gpt)",
        at_least(1)},
    Key{"model.depth",
        slot<&Config::model, &ModelConfig::depth>,
        "hidden layers (mlp) or blocks (convnet, resnet, gpt)",
        at_least(1)},
    Key{"model.classes",
        slot<&Config::model, &ModelConfig::classes>,
        "outputs of the network, and classes of synthetic samples; 0: as the "
        "data needs",
        at_least(0)},
    Key{"model.dropout",
        slot<&Config::model, &ModelConfig::dropout>,
        "share of the values dropped while training (mlp, convnet, gpt)",
        kBelowOne},
    Key{"model.heads",
        slot<&Config::model, &ModelConfig::heads>,
        "attention heads; they must divide the width (gpt)",
        at_least(1)},
    Key{"model.context",
        slot<&Config::model, &ModelConfig::context>,
        "tokens in one sample (gpt)",
        at_least(1)},
    Key{"model.vocabulary",
        slot<&Config::model, &ModelConfig::vocabulary>,
        "different tokens (gpt)",
        at_least(2)},
    Key{"model.tied",
        slot<&Config::model, &ModelConfig::tied>,
        "use the embedding's weights for the output too (gpt)"},
    Key{"model.head_parts",
        slot<&Config::model, &ModelConfig::head_parts>,
        "layers that the output over the vocabulary is cut into, so that "
        "devices can share it (gpt, not tied)",
        at_least(1)},
    Key{"data.source",
        slot<&Config::data, &DataConfig::source>,
        "where the samples come from",
        one_of(kSources)},
    Key{"data.task",
        slot<&Config::data, &DataConfig::task>,
        "what synthetic samples ask for",
        one_of(kTasks)},
    Key{"data.path",
        slot<&Config::data, &DataConfig::path>,
        "folder of the files; empty: where their package puts them "
        "(fashion-mnist)"},
    Key{"data.samples",
        slot<&Config::data, &DataConfig::samples>,
        "training samples (synthetic)",
        at_least(1)},
    Key{"data.test_samples",
        slot<&Config::data, &DataConfig::test_samples>,
        "test samples (synthetic)",
        at_least(1)},
    Key{"data.features",
        slot<&Config::data, &DataConfig::features>,
        "numbers in one sample (synthetic classification, regression)",
        at_least(1)},
    Key{"data.noise",
        slot<&Config::data, &DataConfig::noise>,
        "how much chance is in the samples: a standard deviation, or the share "
        "of tokens that are drawn (synthetic)",
        at_least(0)},
    Key{"data.seed",
        slot<&Config::data, &DataConfig::seed>,
        "seed of synthetic samples",
        at_least(0)},
    Key{"data.limit",
        slot<&Config::data, &DataConfig::limit>,
        "the most samples read from files, for training and for testing each; "
        "0: all",
        at_least(0)},
    Key{"data.shuffle",
        slot<&Config::data, &DataConfig::shuffle>,
        "visit the samples in another order every epoch"},
    Key{"devices.use",
        slot<&Config::devices, &DevicesConfig::use>,
        "the devices: cpu:2 for two shares of the cores, mpi:2 for two "
        "processes, mpi for those that a launcher started"},
    Key{"devices.memory",
        slot<&Config::devices, &DevicesConfig::memory>,
        "budget of each device, such as 2GiB; empty: no limit"},
    Key{"devices.threads",
        slot<&Config::devices, &DevicesConfig::threads>,
        "threads of each device; 0: share the cores among them",
        between(0, 4096)},
    Key{"devices.pin",
        slot<&Config::devices, &DevicesConfig::pin>,
        "keep each device on its own cores"},
    Key{"devices.patience",
        slot<&Config::devices, &DevicesConfig::patience>,
        "seconds to wait for another device before giving up",
        kPositive},
    Key{"parallel.stages",
        slot<&Config::parallel, &ParallelConfig::stages>,
        "parts the network is cut into; auto: as many as pay",
        between(1, 65536)},
    Key{"parallel.stages_per_device",
        slot<&Config::parallel, &ParallelConfig::stages_per_device>,
        "stages on each device; auto: as the schedule wants it",
        between(1, 64)},
    Key{"parallel.replicas",
        slot<&Config::parallel, &ParallelConfig::replicas>,
        "copies of the pipeline that see other data; auto: as many as pay",
        between(1, 4096)},
    Key{"parallel.shard_states",
        slot<&Config::parallel, &ParallelConfig::shard_states>,
        "what every replica keeps only its own section of",
        one_of(kShardStatesNames)},
    Key{"parallel.bucket",
        slot<&Config::parallel, &ParallelConfig::bucket>,
        "the least that replicas add up together of their gradients; with less "
        "sums begin earlier; empty: a stage's all at once"},
    Key{"parallel.microbatches",
        slot<&Config::parallel, &ParallelConfig::microbatches>,
        "parts a batch is cut into; auto: what is predicted to be fastest",
        between(1, 65536)},
    Key{"parallel.schedule",
        slot<&Config::parallel, &ParallelConfig::schedule>,
        "the order of forwards and backwards; auto: searched for the measured "
        "times and the memory; file:NAME: a schedule in its text form",
        Limits{.words = kScheduleNames, .prefix = kFileSchedule}},
    Key{"parallel.stealing",
        slot<&Config::parallel, &ParallelConfig::stealing>,
        "a device without work does the next actions of others: devices of one "
        "process with cores of their own, one replica, actions long enough"},
    Key{"parallel.plan",
        slot<&Config::parallel, &ParallelConfig::plan>,
        "file of a saved plan to use, with its batch and all that is set here; "
        "empty: make one"},
    Key{"train.batch",
        slot<&Config::train, &TrainConfig::batch>,
        "samples in one step",
        at_least(1)},
    Key{"train.epochs",
        slot<&Config::train, &TrainConfig::epochs>,
        "passes over the training samples",
        at_least(1)},
    Key{"train.steps",
        slot<&Config::train, &TrainConfig::steps>,
        "stop after this many; 0: after the epochs",
        at_least(0)},
    Key{"train.optimizer",
        slot<&Config::train, &TrainConfig::optimizer>,
        "how gradients become changes of the weights",
        one_of(kOptimizers)},
    Key{"train.lr",
        slot<&Config::train, &TrainConfig::lr>,
        "learning rate",
        kPositive},
    Key{"train.momentum",
        slot<&Config::train, &TrainConfig::momentum>,
        "momentum of sgd",
        kBelowOne},
    Key{"train.weight_decay",
        slot<&Config::train, &TrainConfig::weight_decay>,
        "how strongly weights are pulled to zero; not biases and scales",
        at_least(0)},
    Key{"train.beta1",
        slot<&Config::train, &TrainConfig::beta1>,
        "memory of the mean gradient (adamw)",
        kBelowOne},
    Key{"train.beta2",
        slot<&Config::train, &TrainConfig::beta2>,
        "memory of the mean squared gradient (adamw)",
        kBelowOne},
    Key{"train.lr_schedule",
        slot<&Config::train, &TrainConfig::lr_schedule>,
        "the learning rate after the warmup",
        one_of(kLrSchedules)},
    Key{"train.warmup",
        slot<&Config::train, &TrainConfig::warmup>,
        "steps in which the learning rate rises from zero",
        at_least(0)},
    Key{"train.min_lr",
        slot<&Config::train, &TrainConfig::min_lr>,
        "the learning rate at the end of a cosine",
        at_least(0)},
    Key{"train.clip",
        slot<&Config::train, &TrainConfig::clip>,
        "the largest norm of all gradients together; 0: not clipped",
        at_least(0)},
    Key{"train.precision",
        slot<&Config::train, &TrainConfig::precision>,
        "what layers compute in; weights and updates are fp32 in any case",
        one_of(kPrecisionNames)},
    Key{"train.seed",
        slot<&Config::train, &TrainConfig::seed>,
        "seed of the samples' order and of dropout",
        at_least(0)},
    Key{"train.evaluate_every",
        slot<&Config::train, &TrainConfig::evaluate_every>,
        "epochs between evaluations; 0: only before and after",
        at_least(0)},
    Key{"train.loss",
        slot<&Config::train, &TrainConfig::loss>,
        "what training makes small (auto: what fits the data)",
        one_of(kLosses)},
    Key{"output.directory",
        slot<&Config::output, &OutputConfig::directory>,
        "folder of the run"},
    Key{"output.overwrite",
        slot<&Config::output, &OutputConfig::overwrite>,
        "replace an earlier run in that folder"},
    Key{"output.trace",
        slot<&Config::output, &OutputConfig::trace>,
        "steps to trace, from the second on, into trace.json (for Perfetto) "
        "and timeline.html; 0: none",
        between(0, 1000)},
};

}  // namespace

std::span<const KeySection> config_sections() {
  return kSections;
}

std::span<const Key> config_keys() {
  return kKeys;
}

}  // namespace cleave
