#include "cleave/train/trainer.h"

#include <algorithm>
#include <numeric>

#include "cleave/data/order.h"
#include "cleave/error.h"
#include "cleave/schedule/passes.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/validate.h"
#include "cleave/train/microbatches.h"

namespace cleave {
namespace {

// Ranks that finish a step early start the next one, which closes the gap
// between steps; more than one ahead would gain nothing.
constexpr size_t kStepsUnderWay = 2;

std::int64_t batches_in(std::int64_t samples, std::int64_t batch) {
  return (samples + batch - 1) / batch;
}

Seconds median(std::vector<Seconds> durations) {
  if (durations.empty()) {
    return {};
  }
  const auto middle = durations.begin() + durations.size() / 2;
  std::nth_element(durations.begin(), middle, durations.end());
  return *middle;
}

}  // namespace

std::int64_t planned_steps(std::int64_t samples,
                           std::int64_t batch,
                           const FitOptions& options) {
  return options.steps > 0 ? options.steps
                           : options.epochs * batches_in(samples, batch);
}

Trainer::Trainer(const Model& model,
                 const Plan& plan,
                 const Devices& devices,
                 const TrainerOptions& options)
    : plan_(plan),
      options_(options),
      hub_(static_cast<int>(plan.stages.size()), options.patience) {
  check_plan(plan, model.layer_names());
  if (devices.size() < plan.stages.size()) {
    fail("the plan has " + std::to_string(plan.stages.size()) +
             " stages, but there are " + std::to_string(devices.size()) +
             " devices",
         "Give it one device per stage.");
  }
  std::vector<std::future<void>> built;
  for (int rank = 0; rank < static_cast<int>(plan.stages.size()); ++rank) {
    ranks_.push_back(std::make_unique<RankThread>(devices[rank], hub_));
    built.push_back(ranks_.back()->build([&, rank] {
      return std::make_unique<RankTrainer>(
          model, plan_, options_, hub_.connect({rank}));
    }));
  }
  for (std::future<void>& future : built) {
    future.wait();
  }
  if (hub_.failure()) {
    std::rethrow_exception(hub_.failure());
  }
}

Trainer::~Trainer() {
  hub_.abort(std::make_exception_ptr(Error("the trainer was destroyed", "")));
}

template <class Result>
std::vector<std::future<Result>> Trainer::ask_all(
    std::function<Result(RankTrainer&)> question) {
  if (hub_.failure()) {
    fail("the trainer stopped at an earlier error",
         "Make a new one to go on.");
  }
  std::vector<std::future<Result>> futures;
  for (const auto& rank : ranks_) {
    futures.push_back(rank->template ask<Result>(question));
  }
  return futures;
}

// Waits for all ranks even when one failed, so that none still works on what
// the caller may free, and reports the failure that came first.
template <class Result>
std::vector<Result> Trainer::answers(
    std::vector<std::future<Result>> futures) {
  for (const std::future<Result>& future : futures) {
    future.wait();
  }
  if (hub_.failure()) {
    std::rethrow_exception(hub_.failure());
  }
  std::vector<Result> results;
  for (std::future<Result>& future : futures) {
    results.push_back(future.get());
  }
  return results;
}

std::shared_ptr<const Schedule> Trainer::schedule_for(int microbatches,
                                                      bool training) {
  auto& known = schedules_[{microbatches, training}];
  if (!known) {
    const int stages = static_cast<int>(ranks_.size());
    const Schedule complete =
        with_messages(training ? make_schedule(plan_.schedule,
                                               stages,
                                               microbatches)
                               : forward_only(stages, microbatches));
    check(complete);
    known = std::make_shared<const Schedule>(complete);
  }
  return known;
}

std::shared_ptr<const Pass> Trainer::make_pass(const Batch& batch,
                                               bool training) {
  auto pass = std::make_shared<Pass>();
  pass->microbatches = split_batch(batch, plan_.microbatches);
  pass->schedule =
      schedule_for(static_cast<int>(pass->microbatches.size()), training);
  pass->loss = &options_.loss;
  pass->count = std::max<std::int64_t>(options_.loss.count(batch.targets), 1);
  pass->seed = options_.seed;
  pass->step = steps_;
  return pass;
}

Trainer::Pending Trainer::start_step(const Batch& batch, std::int64_t epoch) {
  ++steps_;
  const std::shared_ptr<const Pass> pass = make_pass(batch, true);
  return {
      .results = ask_all<StepResult>(
          [pass](RankTrainer& trainer) { return trainer.train(*pass); }),
      .samples = batch.inputs.size(0),
      .count = pass->count,
      .step = steps_,
      .epoch = epoch,
  };
}

StepDone Trainer::finish_step(Pending pending) {
  const std::vector<StepResult> results = answers(std::move(pending.results));
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> spent = now - last_finish_;
  last_finish_ = now;
  Seconds busy;
  for (const StepResult& result : results) {
    busy += result.busy;
  }
  const auto ranks = static_cast<double>(results.size());
  return {
      .step = pending.step,
      .epoch = pending.epoch,
      .samples = pending.samples,
      .loss =
          results.back().loss_sum / static_cast<double>(pending.count),
      .learning_rate = options_.learning_rate.at(pending.step),
      .gradient_norm = results.front().gradient_norm,
      .duration = {spent.count()},
      .bubble = std::clamp(1 - busy.value / (ranks * spent.count()), 0.0, 1.0),
      .peak_memory = peak_memory(),
  };
}

StepDone Trainer::step(const Batch& batch) {
  last_finish_ = Clock::now();
  return finish_step(start_step(batch, 1));
}

FitResult Trainer::fit(const Dataset& data,
                       const FitOptions& options,
                       EventSink& events) {
  const std::int64_t total = planned_steps(data.size(), plan_.batch, options);
  events.on(RunStarted{
      .model = plan_.model,
      .stages = static_cast<int>(ranks_.size()),
      .microbatches = plan_.microbatches,
      .schedule = plan_.schedule,
      .steps = total,
      .epochs = (total + batches_in(data.size(), plan_.batch) - 1) /
                batches_in(data.size(), plan_.batch),
      .batch = plan_.batch,
      .predicted_step = plan_.step.value > 0 ? std::optional(plan_.step)
                                             : std::nullopt,
  });
  if (options.test != nullptr) {
    judge(*options.test, events);
  }
  FitResult result;
  const Clock::time_point start = last_finish_ = Clock::now();
  std::vector<Seconds> durations;
  std::deque<Pending> under_way;
  const auto finish_one = [&] {
    const StepDone done = finish_step(std::move(under_way.front()));
    under_way.pop_front();
    durations.push_back(done.duration);
    ++result.steps;
    events.on(done);
  };
  for (std::int64_t epoch = 0; result.steps < total && !result.interrupted;
       ++epoch) {
    const BatchOrder order(data.size(),
                           plan_.batch,
                           epoch,
                           {.seed = options_.seed, .shuffle = options.shuffle});
    const std::int64_t steps = std::min(order.steps(), total - result.steps);
    for (std::int64_t i = 0; i < steps && !result.interrupted; ++i) {
      under_way.push_back(start_step(data.get(order.indices(i)), epoch + 1));
      if (under_way.size() == kStepsUnderWay) {
        finish_one();
      }
      result.interrupted = options.stop != nullptr && *options.stop;
    }
    while (!under_way.empty()) {
      finish_one();
    }
    const bool between = options.evaluate_every > 0 && result.steps < total &&
                         (epoch + 1) % options.evaluate_every == 0;
    if (between && options.test != nullptr && !result.interrupted) {
      judge(*options.test, events);
      last_finish_ = Clock::now();
    }
  }
  if (options.test != nullptr && !result.interrupted) {
    judge(*options.test, events);
  }
  const std::chrono::duration<double> spent = Clock::now() - start;
  result.median_step = median(durations);
  events.on(RunEnded{
      .steps = result.steps,
      .interrupted = result.interrupted,
      .duration = {spent.count()},
      .median_step = result.median_step,
      .predicted_step = plan_.step.value > 0 ? std::optional(plan_.step)
                                             : std::nullopt,
  });
  return result;
}

void Trainer::judge(const Dataset& data, EventSink& events) {
  const Evaluation judged = evaluate(data);
  events.on(Evaluated{.step = steps_,
                      .data = "test",
                      .loss = judged.loss,
                      .accuracy = judged.accuracy,
                      .samples = judged.samples});
}

Evaluation Trainer::evaluate(const Dataset& data) {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t count = 0;
  const BatchOrder order(data.size(), plan_.batch, 0, {.shuffle = false});
  for (std::int64_t i = 0; i < order.steps(); ++i) {
    const auto pass = make_pass(data.get(order.indices(i)), false);
    const StepResult last =
        answers(ask_all<StepResult>([pass](RankTrainer& trainer) {
          return trainer.evaluate(*pass);
        })).back();
    loss += last.loss_sum;
    correct += last.correct;
    count += pass->count;
  }
  Evaluation evaluation{.loss = loss / static_cast<double>(count),
                        .accuracy = {},
                        .samples = data.size()};
  if (data.classes() > 0) {
    evaluation.accuracy =
        static_cast<double>(correct) / static_cast<double>(count);
  }
  return evaluation;
}

std::vector<NamedTensors> Trainer::stages() {
  return answers(ask_all<NamedTensors>(
      [](RankTrainer& trainer) { return trainer.state(); }));
}

NamedTensors Trainer::merged() {
  NamedTensors all;
  for (NamedTensors& stage : stages()) {
    all.insert(all.end(), stage.begin(), stage.end());
  }
  return all;
}

std::vector<Bytes> Trainer::peak_memory() const {
  std::vector<Bytes> peaks;
  for (const auto& rank : ranks_) {
    peaks.push_back(rank->peak_memory());
  }
  return peaks;
}

}  // namespace cleave
