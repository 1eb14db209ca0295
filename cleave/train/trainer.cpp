#include "cleave/train/trainer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cleave/data/order.h"
#include "cleave/error.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/schedule/passes.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/validate.h"
#include "cleave/train/microbatches.h"

namespace cleave {
namespace {

// From the ranks' spans, which are on the steady clock.
StepTimeline timeline_of(const std::vector<StepResult>& results,
                         std::int64_t step) {
  StepTimeline found{.step = step};
  Seconds first{std::numeric_limits<double>::infinity()};
  Seconds last;
  for (const StepResult& result : results) {
    for (const Span& span : result.spans) {
      if (is_compute(span.action.op)) {
        first = std::min(first, span.start);
        last = std::max(last, span.end);
      }
    }
  }
  found.zero = first;
  found.measured.length = last - first;
  for (const StepResult& result : results) {
    std::vector<Span>& row = found.measured.rows.emplace_back(result.spans);
    Seconds busy;
    for (Span& span : row) {
      span.start = span.start - first;
      span.end = span.end - first;
      busy += is_compute(span.action.op) ? span.end - span.start : Seconds{};
    }
    found.measured.busy.push_back(busy);
  }
  return found;
}

// The device that the plan names for the rank; where the plan was made for
// other devices, the one in its place.
const Device& device_of(const Plan& plan, int rank, const Devices& devices) {
  const auto is_known = [&](const StagePlan& stage) {
    return std::ranges::find(devices, stage.device, &Device::name) !=
           devices.end();
  };
  if (!std::ranges::all_of(plan.stages, is_known)) {
    return devices[rank];
  }
  const std::vector<Rank> placement = placement_of(plan);
  const auto stage =
      std::ranges::find(placement, Rank{rank}) - placement.begin();
  return *std::ranges::find(devices, plan.stages[stage].device, &Device::name);
}

}  // namespace

Trainer::Trainer(const Model& model,
                 const Plan& plan,
                 const Devices& devices,
                 const TrainerOptions& options)
    : plan_(plan), options_(options), hub_(rank_count(plan), options.patience) {
  check_plan(plan, model.layer_names());
  const int ranks = rank_count(plan);
  if (std::ssize(devices) < ranks) {
    fail("the plan uses " + std::to_string(ranks) + " devices, but there are " +
             std::to_string(devices.size()),
         "Give it the devices the plan was made for.");
  }
  std::vector<std::future<void>> built;
  for (int rank = 0; rank < ranks; ++rank) {
    ranks_.push_back(
        std::make_unique<RankThread>(device_of(plan, rank, devices), hub_));
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
    fail("the trainer stopped at an earlier error", "Make a new one to go on.");
  }
  std::vector<std::future<Result>> futures;
  futures.reserve(ranks_.size());
  for (const auto& rank : ranks_) {
    futures.push_back(rank->template ask<Result>(question));
  }
  return futures;
}

// Waits for all ranks even when one failed, so that none still works on what
// the caller may free, and reports the failure that came first.
template <class Result>
std::vector<Result> Trainer::answers(std::vector<std::future<Result>> futures) {
  for (const std::future<Result>& future : futures) {
    future.wait();
  }
  if (hub_.failure()) {
    std::rethrow_exception(hub_.failure());
  }
  std::vector<Result> results;
  results.reserve(futures.size());
  for (std::future<Result>& future : futures) {
    results.push_back(future.get());
  }
  return results;
}

std::shared_ptr<const Schedule> Trainer::schedule_for(int microbatches,
                                                      bool training) {
  auto& known = schedules_[{microbatches, training}];
  if (!known) {
    const Schedule complete = with_messages(
        training ? schedule_of(plan_, microbatches)
                 : forward_only(placement_of(plan_), microbatches));
    check(complete);
    known = std::make_shared<const Schedule>(complete);
  }
  return known;
}

std::shared_ptr<const Pass> Trainer::make_pass(const Batch& batch,
                                               bool training,
                                               bool traced) {
  auto pass = std::make_shared<Pass>();
  pass->traced = traced;
  pass->microbatches = split_batch(batch, plan_.microbatches);
  pass->schedule =
      schedule_for(static_cast<int>(pass->microbatches.size()), training);
  pass->loss = &options_.loss;
  pass->count = std::max<std::int64_t>(options_.loss.count(batch.targets), 1);
  pass->seed = options_.seed;
  pass->step = steps_;
  return pass;
}

Trainer::Pending Trainer::start_step(const Batch& batch,
                                     std::int64_t epoch,
                                     bool traced) {
  ++steps_;
  const std::shared_ptr<const Pass> pass = make_pass(batch, true, traced);
  return {
      .results = ask_all<StepResult>(
          [pass](RankTrainer& trainer) { return trainer.train(*pass); }),
      .samples = batch.inputs.size(0),
      .count = pass->count,
      .step = steps_,
      .epoch = epoch,
      .timeline = traced ? std::optional(StepTimeline{}) : std::nullopt,
  };
}

StepDone Trainer::finish_step(Pending& pending) {
  const std::vector<StepResult> results = answers(std::move(pending.results));
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> spent = now - last_finish_;
  last_finish_ = now;
  Seconds busy;
  double loss_sum = 0;  // only the rank of the last stage has one
  for (const StepResult& result : results) {
    busy += result.busy;
    loss_sum += result.loss_sum;
  }
  if (pending.timeline) {
    pending.timeline = timeline_of(results, pending.step);
  }
  const auto ranks = static_cast<double>(results.size());
  return {
      .step = pending.step,
      .epoch = pending.epoch,
      .samples = pending.samples,
      .loss = loss_sum / static_cast<double>(pending.count),
      .learning_rate = options_.learning_rate.at(pending.step),
      .gradient_norm = results.front().gradient_norm,
      .duration = {spent.count()},
      .bubble = std::clamp(1 - busy.value / (ranks * spent.count()), 0.0, 1.0),
      .peak_memory = peak_memory(),
  };
}

StepDone Trainer::step(const Batch& batch) {
  last_finish_ = Clock::now();
  Pending pending = start_step(batch, 1, /*traced=*/false);
  return finish_step(pending);
}

Evaluation Trainer::evaluate(const Dataset& data) {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t count = 0;
  const BatchOrder order(data.size(), plan_.batch, 0, {.shuffle = false});
  for (std::int64_t i = 0; i < order.steps(); ++i) {
    const auto pass = make_pass(data.get(order.indices(i)), false);
    for (const StepResult& result :
         answers(ask_all<StepResult>([pass](RankTrainer& trainer) {
           return trainer.evaluate(*pass);
         }))) {  // only the rank of the last stage has found something
      loss += result.loss_sum;
      correct += result.correct;
    }
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
  using States = std::map<StageId, NamedTensors>;
  std::vector<NamedTensors> stages(plan_.stages.size());
  for (States& states : answers(ask_all<States>(
           [](RankTrainer& trainer) { return trainer.state(); }))) {
    for (auto& [stage, state] : states) {
      stages[stage.value] = std::move(state);
    }
  }
  return stages;
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
