#include "cleave/data/synthetic.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/data/splitmix64.h"
#include "cleave/error.h"

namespace cleave {
namespace {

constexpr std::int64_t kMaxSamples = 1'000'000'000;
constexpr std::int64_t kMaxSize = 100'000;  // of any one dimension
constexpr double kMaxValues = 1e10;         // in all: 40 GB of floats

// Where the numbers come from. The law is the same for both splits; the
// samples are not.
struct Draws {
  at::Generator law;
  at::Generator samples;
  std::int64_t count = 0;
};

at::Generator generator(std::uint64_t seed, std::uint64_t purpose) {
  return at::detail::createCPUGenerator(derived_seed(seed, purpose));
}

std::unique_ptr<Dataset> dataset(const Batch& batch,
                                 int classes,
                                 const std::string& what) {
  const std::string count = std::to_string(batch.inputs.size(0));
  return std::make_unique<TensorDataset>(
      batch.inputs,
      batch.targets,
      classes,
      "synthetic " + what + ", " + count + " samples");
}

at::Tensor noise_like(const at::Tensor& values,
                      const SyntheticOptions& options,
                      const Draws& draws) {
  return options.noise *
         at::randn(values.sizes(), draws.samples, values.options());
}

std::unique_ptr<Dataset> classification(const SyntheticOptions& options,
                                        const Draws& draws) {
  // Two centres per class, so that no single direction tells a class apart.
  constexpr std::int64_t kCentres = 2;
  const at::Tensor centres =
      at::randn({options.classes * kCentres, options.features}, draws.law);
  const at::Tensor nearest = at::randint(
      options.classes * kCentres, {draws.count}, draws.samples, at::kLong);
  at::Tensor inputs = centres.index_select(0, nearest);
  inputs += noise_like(inputs, options, draws);
  return dataset({inputs, nearest.floor_divide(kCentres)},
                 options.classes,
                 "classification of " + std::to_string(options.features) +
                     " features into " + std::to_string(options.classes) +
                     " classes");
}

std::unique_ptr<Dataset> regression(const SyntheticOptions& options,
                                    const Draws& draws) {
  constexpr std::int64_t kHidden = 32;
  // Targets then vary by about one: tanh of a standard normal number has a
  // variance of 0.39.
  const double gain = std::sqrt(1 / (0.39 * kHidden));
  // In double, so that the order of summation, which depends on the number of
  // threads, is lost in the rounding to float.
  const at::Tensor hidden =
      at::randn({options.features, kHidden}, draws.law, at::kDouble) /
      std::sqrt(static_cast<double>(options.features));
  const at::Tensor out =
      at::randn({kHidden, options.outputs}, draws.law, at::kDouble) * gain;
  const at::Tensor inputs =
      at::randn({draws.count, options.features}, draws.samples);
  at::Tensor targets =
      inputs.to(at::kDouble).matmul(hidden).tanh().matmul(out).to(at::kFloat);
  targets += noise_like(targets, options, draws);
  return dataset({inputs, targets},
                 0,
                 "regression of " + std::to_string(options.features) +
                     " features to " + std::to_string(options.outputs) +
                     " numbers");
}

std::unique_ptr<Dataset> tokens(const SyntheticOptions& options,
                                const Draws& draws) {
  // Every symbol has up to four successors; the first is the likeliest.
  const at::Tensor next = at::randint(
      options.vocabulary, {options.vocabulary, 4}, draws.law, at::kLong);
  const auto uniform = [&] { return at::rand({draws.count}, draws.samples); };
  const auto any = [&] {
    return at::randint(
        options.vocabulary, {draws.count}, draws.samples, at::kLong);
  };
  std::vector<at::Tensor> columns{any()};
  for (std::int64_t i = 0; i < options.length; ++i) {
    const at::Tensor u = uniform();  // 60 %, 20 %, 12 %, 8 %
    const at::Tensor choice =
        (u >= 0.6).to(at::kLong) + (u >= 0.8) + (u >= 0.92);
    const at::Tensor likely = next.index({columns.back(), choice});
    const at::Tensor random = any();
    columns.push_back(at::where(uniform() < options.noise, random, likely));
  }
  const at::Tensor text = at::stack(columns, 1);
  return dataset(
      {text.narrow(1, 0, options.length), text.narrow(1, 1, options.length)},
      options.vocabulary,
      "text of " + std::to_string(options.length) + " tokens from " +
          std::to_string(options.vocabulary) + " symbols");
}

std::unique_ptr<Dataset> images(const SyntheticOptions& options,
                                const Draws& draws) {
  // A coarse grid made larger: neighbouring pixels are alike, as in pictures.
  const at::Tensor coarse =
      at::randn({options.classes, options.channels, 4, 4}, draws.law);
  const at::Tensor patterns =
      at::upsample_bilinear2d(coarse, {options.height, options.width}, true);
  const at::Tensor labels =
      at::randint(options.classes, {draws.count}, draws.samples, at::kLong);
  at::Tensor inputs = patterns.index_select(0, labels);
  inputs += noise_like(inputs, options, draws);
  return dataset({inputs, labels},
                 options.classes,
                 "images of " + std::to_string(options.channels) + "x" +
                     std::to_string(options.height) + "x" +
                     std::to_string(options.width) + " in " +
                     std::to_string(options.classes) + " classes");
}

struct Task {
  std::string_view name;
  SyntheticTask task;
  std::unique_ptr<Dataset> (*make)(const SyntheticOptions&, const Draws&);
};

constexpr std::array kTasks{
    Task{"classification", SyntheticTask::classification, classification},
    Task{"regression", SyntheticTask::regression, regression},
    Task{"tokens", SyntheticTask::tokens, tokens},
    Task{"images", SyntheticTask::images, images},
};

void check_size(std::int64_t value,
                std::int64_t least,
                std::int64_t most,
                const std::string& what) {
  if (value < least || value > most) {
    fail("synthetic data with " + std::to_string(value) + " " + what,
         "Ask for " + std::to_string(least) + " to " + std::to_string(most) +
             ".");
  }
}

void check_noise(const SyntheticOptions& options) {
  const bool is_share = options.task == SyntheticTask::tokens;
  const double most = is_share ? 1 : 1e6;
  if (!(options.noise >= 0 && options.noise <= most)) {
    fail("synthetic data with a noise of " + std::to_string(options.noise),
         is_share ? "Ask for a share between 0 and 1."
                  : "Ask for zero or a positive number, such as 0.2.");
  }
}

void check(const SyntheticOptions& options) {
  check_size(options.train_samples, 1, kMaxSamples, "train samples");
  check_size(options.test_samples, 1, kMaxSamples, "test samples");
  check_size(options.features, 1, kMaxSize, "features");
  check_size(options.classes, 2, kMaxSize, "classes");
  check_size(options.outputs, 1, kMaxSize, "outputs");
  check_size(options.vocabulary, 2, kMaxSize, "symbols");
  check_size(options.length, 1, kMaxSize, "tokens a sample");
  check_size(options.channels, 1, kMaxSize, "channels");
  check_size(options.height, 1, kMaxSize, "rows of pixels");
  check_size(options.width, 1, kMaxSize, "columns of pixels");
  check_noise(options);
}

// Of inputs and targets together.
double values_per_sample(const SyntheticOptions& options) {
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  switch (options.task) {
    case SyntheticTask::classification:
      return number(options.features) + 1;
    case SyntheticTask::regression:
      return number(options.features) + number(options.outputs);
    case SyntheticTask::tokens:
      return 2 * number(options.length);
    case SyntheticTask::images:
      return number(options.channels) * number(options.height) *
                 number(options.width) +
             1;
  }
  return 0;
}

}  // namespace

std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options,
                                        Split split) {
  check(options);
  const bool train = split == Split::train;
  const Draws draws{
      .law = generator(options.seed, 0),
      .samples = generator(options.seed, train ? 1 : 2),
      .count = train ? options.train_samples : options.test_samples};
  if (static_cast<double>(draws.count) * values_per_sample(options) >
      kMaxValues) {
    fail("the synthetic samples do not fit into memory",
         "Ask for fewer or smaller ones.");
  }
  for (const Task& task : kTasks) {
    if (task.task == options.task) {
      return task.make(options, draws);
    }
  }
  fail("unknown synthetic task", "Use one of SyntheticTask.");
}

std::vector<std::string_view> synthetic_task_names() {
  std::vector<std::string_view> names;
  names.reserve(kTasks.size());
  for (const Task& task : kTasks) {
    names.push_back(task.name);
  }
  return names;
}

SyntheticTask parse_synthetic_task(std::string_view name) {
  std::string known;
  for (const Task& task : kTasks) {
    if (task.name == name) {
      return task.task;
    }
    known += (known.empty() ? "" : ", ") + std::string(task.name);
  }
  fail("unknown synthetic task '" + std::string(name) + "'",
       "Use one of: " + known + ".");
}

}  // namespace cleave
