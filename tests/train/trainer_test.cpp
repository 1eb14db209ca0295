#include "cleave/train/trainer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>

#include "cleave/data/synthetic.h"
#include "cleave/error.h"
#include "cleave/model/families/families.h"
#include "networks.h"
#include "reference.h"

namespace cleave {
namespace {

class Recorder : public EventSink {
 public:
  void on(const Event& event) override { events.push_back(event); }

  template <class Kind>
  std::vector<Kind> all() const {
    std::vector<Kind> found;
    for (const Event& event : events) {
      if (const Kind* kind = std::get_if<Kind>(&event)) {
        found.push_back(*kind);
      }
    }
    return found;
  }

  std::vector<Event> events;
};

const TensorDataset& clusters(Split split) {
  const auto make = [](std::uint64_t seed, std::int64_t samples) {
    torch::manual_seed(seed);
    const at::Tensor labels = torch::randint(3, {samples});
    const at::Tensor centres = torch::eye(3) * 4;
    return TensorDataset(
        centres.index_select(0, labels) + torch::randn({samples, 3}),
        labels,
        3,
        "three clusters");
  };
  static const TensorDataset kTrain = make(1, 203);
  static const TensorDataset kTest = make(2, 97);
  return split == Split::train ? kTrain : kTest;
}

Model small_mlp() {
  return mlp({.input = {3}, .outputs = 3, .width = 16, .depth = 2});
}

Plan two_stages(const Model& model) {
  return plan_of(model, {3, model.size() - 3}, "1f1b", 4, 20);
}

// Remembers with how many threads it was read.
class WatchedDataset : public TensorDataset {
 public:
  using TensorDataset::TensorDataset;

  Batch get(std::span<const std::int64_t> indices) const override {
    most_threads = std::max(most_threads, at::get_num_threads());
    return TensorDataset::get(indices);
  }

  mutable int most_threads = 0;
};

TEST(Trainer, reading_a_batch_takes_no_cores_from_the_devices) {
  at::set_num_threads(2);
  const WatchedDataset data(
      torch::randn({60, 3}), torch::randint(3, {60}), 3, "watched");
  const Model model = small_mlp();
  Trainer trainer(model, two_stages(model), test_devices(2), {});
  Recorder recorder;
  trainer.fit(data, {.epochs = 1, .test = &data}, recorder);
  EXPECT_EQ(data.most_threads, 1);
  EXPECT_EQ(at::get_num_threads(), 2);
}

TEST(Trainer, fit_learns_and_tells_what_it_does) {
  const Model model = small_mlp();
  Trainer trainer(model,
                  with(two_stages(model), {.clips = true}),
                  test_devices(2),
                  {.learning_rate = constant_rate(1e-2), .clip = 1});
  Recorder recorder;
  const FitResult result = trainer.fit(
      clusters(Split::train),
      {.epochs = 3, .test = &clusters(Split::test), .evaluate_every = 1},
      recorder);
  EXPECT_EQ(result.steps, 33);  // 203 samples: ten batches of 20, one of 3
  const auto steps = recorder.all<StepDone>();
  ASSERT_EQ(steps.size(), 33u);
  EXPECT_EQ(steps[10].samples, 3);
  EXPECT_EQ(steps[10].epoch, 1);
  EXPECT_EQ(steps[11].epoch, 2);
  EXPECT_EQ(steps.back().step, 33);
  EXPECT_TRUE(steps.front().gradient_norm.has_value());
  EXPECT_LT(steps.back().loss, steps.front().loss);
  const auto evaluated = recorder.all<Evaluated>();
  ASSERT_EQ(evaluated.size(), 4u);  // before, after epochs 1 and 2, at the end
  EXPECT_EQ(evaluated.front().step, 0);
  EXPECT_GT(*evaluated.back().evaluation.accuracy, 0.9);
  EXPECT_EQ(recorder.all<RunStarted>().front().steps, 33);
  EXPECT_FALSE(recorder.all<RunEnded>().front().interrupted);
}

TEST(Trainer, fit_gives_the_bits_of_single_steps) {
  const Model model = small_mlp();
  const Training training{.seed = 4};
  Trainer one_go(model, two_stages(model), test_devices(2), training);
  one_go.fit(clusters(Split::train), {.epochs = 2});
  Trainer again(model, two_stages(model), test_devices(2), training);
  again.fit(clusters(Split::train), {.epochs = 2});
  expect_same_bits(again.merged(), one_go.merged());
}

// Goes by the signs of the gradients alone.
class SignDescent : public Optimizer {
 public:
  explicit SignDescent(const std::vector<Parameter>& parameters)
      : parameters_(parameters) {}

  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, value, whole] : parameters_) {
      if (value.grad().defined()) {
        value.sub_(learning_rate * value.grad().sign());
      }
    }
  }

  NamedTensors get() const override { return {}; }

 private:
  std::vector<Parameter> parameters_;
};

TEST(Trainer, takes_losses_optimizers_and_rates_of_the_user) {
  const Loss usual = cross_entropy();
  const double weight = 0.5;
  const Training training{
      .loss = {.name = "half",
               .sum =
                   [=](at::Tensor result, const at::Tensor& targets) {
                     return weight * usual.sum(std::move(result), targets);
                   },
               .count = usual.count},
      .optimizer =
          [](const std::vector<Parameter>& parameters) {
            return std::make_unique<SignDescent>(parameters);
          },
      .learning_rate = [](std::int64_t step) { return 1e-2 / step; }};
  const Model model = small_mlp();
  const std::vector<Batch> batches(4,
                                   first_samples(clusters(Split::train), 20));
  const OneDeviceRun expected = plain_run(model, batches, 4, training);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  expect_same_run(model, two_stages(model), batches, training, expected);
}

TEST(Trainer, evaluation_changes_nothing) {
  const Model model =
      convnet({.input = {1, 8, 8}, .outputs = 3, .width = 2, .dropout = 0.5});
  torch::manual_seed(0);
  const TensorDataset data(
      torch::randn({9, 1, 8, 8}), torch::randint(3, {9}), 3, "noise");
  const Batch batch = data.get(std::vector<std::int64_t>{0, 1, 2, 3});
  const Plan plan = plan_of(model, {5, model.size() - 5}, "1f1b", 2, 4);
  Trainer judged(model, plan, test_devices(2), {});
  const Evaluation before = judged.evaluate(data);
  EXPECT_EQ(judged.evaluate(data).loss, before.loss);
  judged.step(batch);
  judged.evaluate(data);
  judged.step(batch);
  Trainer plain(model, plan, test_devices(2), {});
  plain.step(batch);
  plain.step(batch);
  expect_same_bits(judged.merged(), plain.merged());
}

TEST(Trainer, a_stop_ends_after_the_steps_under_way) {
  const Model model = small_mlp();
  Trainer trainer(model, two_stages(model), test_devices(2), {});
  class StopAfterThree : public EventSink {
   public:
    void on(const Event& event) override {
      steps_ += std::holds_alternative<StepDone>(event);
      stop = steps_ >= 3;
    }
    std::atomic<bool> stop = false;

   private:
    int steps_ = 0;
  } sink;
  const FitResult result = trainer.fit(
      clusters(Split::train), {.epochs = 100, .stop = &sink.stop}, sink);
  EXPECT_TRUE(result.interrupted);
  EXPECT_GE(result.steps, 3);
  EXPECT_LE(result.steps, 5);
  EXPECT_EQ(trainer.merged().size(), 6u);  // and it still answers
}

TEST(Trainer, refuses_data_without_samples) {
  class Nothing : public TensorDataset {
   public:
    using TensorDataset::TensorDataset;
    std::int64_t size() const override { return 0; }
  };
  const Nothing nothing(
      torch::empty({1, 3}), torch::zeros({1}, torch::kLong), 3, "nothing");
  const Model model = small_mlp();
  Trainer trainer(model, two_stages(model), test_devices(2), {});
  EXPECT_THROW(trainer.fit(nothing), Error);
}

TEST(Trainer, a_step_that_cannot_begin_does_not_count) {
  const Model model = small_mlp();
  int calls = 0;
  Trainer trainer(model,
                  two_stages(model),
                  test_devices(2),
                  {.learning_rate = [&](std::int64_t step) {
                    if (++calls == 1) {
                      throw Error("no rate yet", "");
                    }
                    return 1e-3 * static_cast<double>(step);
                  }});
  const Batch batch = first_samples(clusters(Split::train), 20);
  EXPECT_THROW(trainer.step(batch), Error);
  const StepDone done = trainer.step(batch);
  EXPECT_EQ(done.step, 1);
  EXPECT_EQ(done.learning_rate, 1e-3);
  EXPECT_EQ(calls, 2);  // once per step
}

TEST(Trainer, refuses_devices_without_threads) {
  const Model model = small_mlp();
  Devices devices = test_devices(2);
  devices[1].threads = 0;
  EXPECT_THROW(Trainer(model, two_stages(model), devices, {}), Error);
}

TEST(Trainer, steps_limit_the_run_across_epochs) {
  const Model model = small_mlp();
  Trainer trainer(model, two_stages(model), test_devices(2), {});
  Recorder recorder;
  EXPECT_EQ(trainer.fit(clusters(Split::train), {.steps = 13}, recorder).steps,
            13);
  EXPECT_EQ(recorder.all<StepDone>().back().epoch, 2);
}

// In the last backward of a step waits until other weights have changed since
// its first forward.
struct Waits : torch::nn::Module {
  explicit Waits(std::shared_ptr<at::Tensor> other)
      : weight(std::move(other)) {}

  at::Tensor forward(const at::Tensor& x) {
    if (forwards++ % kMicrobatches == 0) {
      before = weight->_version();
    }
    at::Tensor out = x * 1.0;
    out.register_hook([this](const at::Tensor&) { wait(); });
    return out;
  }

  void wait() {
    if (++backwards % kMicrobatches > 0) {
      return;
    }
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (weight->_version() == before) {
      TORCH_CHECK(std::chrono::steady_clock::now() < end, "nothing changed");
      std::this_thread::yield();
    }
  }

  std::shared_ptr<at::Tensor> weight;
  std::uint32_t before = 0;
  int forwards = 0;
  int backwards = 0;
};

// Of the last stage, while the first one's last backward still runs.
TEST(Trainer, a_stage_is_updated_while_others_compute) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "auto"}) {
    const auto last = std::make_shared<at::Tensor>();
    Model model("waits");
    model.add<torch::nn::Linear>("first", 3, 3);
    model.add<Waits>("waits", last);
    model.add("last", [last] {
      auto linear = std::make_shared<torch::nn::LinearImpl>(3, 3);
      *last = linear->weight;
      return make_layer(linear);
    });
    Trainer trainer(model,
                    plan_of(model, {2, 1}, schedule, kMicrobatches, 20),
                    test_devices(2),
                    {.optimizer = Sgd{}});
    const Batch batch{torch::randn({20, 3}), torch::randint(3, {20})};
    for (int step = 0; step < 3; ++step) {
      EXPECT_NO_THROW(trainer.step(batch)) << schedule;
    }
  }
}

}  // namespace
}  // namespace cleave
