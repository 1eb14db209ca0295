#include <algorithm>

#include "cleave/data/order.h"
#include "cleave/error.h"
#include "cleave/train/trainer_core.h"

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
  const auto middle = durations.begin() + std::ssize(durations) / 2;
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

// One call of fit(): where it stands, and what it has found so far.
class TrainerCore::Fit {
 public:
  Fit(TrainerCore& trainer,
      const Dataset& data,
      const FitOptions& options,
      EventSink& events)
      : trainer_(trainer),
        data_(data),
        options_(options),
        events_(events),
        total_(planned_steps(data.size(), trainer.plan_.batch, options)) {}

  FitResult run() {
    const PinnedScope caller(trainer_.caller_cores_);
    announce();
    evaluate();
    start_ = trainer_.last_finish_ = Clock::now();
    for (std::int64_t epoch = 0; result_.steps < total_ && !result_.interrupted;
         ++epoch) {
      run_epoch(epoch);
      if (evaluates_after(epoch)) {
        evaluate();
        trainer_.last_finish_ = Clock::now();
      }
    }
    if (!result_.interrupted) {
      evaluate();
    }
    conclude();
    return result_;
  }

 private:
  std::optional<Seconds> predicted_step() const {
    const auto& prediction = trainer_.plan_.prediction;
    return prediction ? std::optional(prediction->step) : std::nullopt;
  }

  std::optional<Seconds> predicted_computing() const {
    const auto& prediction = trainer_.plan_.prediction;
    return prediction
               ? std::optional((1 - prediction->bubble) * prediction->step)
               : std::nullopt;
  }

  void announce() {
    const Plan& plan = trainer_.plan_;
    const std::int64_t per_epoch = batches_in(data_.size(), plan.batch);
    events_.on(RunStarted{
        .model = plan.model,
        .stages = static_cast<int>(plan.stages.size()),
        .replicas = plan.replicas,
        .microbatches = plan.schedule.microbatches,
        .schedule = plan.schedule_name,
        .steps = total_,
        .epochs = (total_ + per_epoch - 1) / per_epoch,
        .batch = plan.batch,
        .predicted_step = predicted_step(),
    });
  }

  void run_epoch(std::int64_t epoch) {
    const BatchOrder order(
        data_.size(),
        trainer_.plan_.batch,
        epoch,
        {.seed = trainer_.training_.seed, .shuffle = options_.shuffle});
    const std::int64_t steps = std::min(order.steps(), total_ - result_.steps);
    for (std::int64_t i = 0; i < steps && !result_.interrupted; ++i) {
      const Portion portion =
          trainer_.own_portion(std::ssize(order.indices(i)));
      under_way_.push_back(trainer_.start_step(
          trainer_.read_portion(data_, order.indices(i), portion),
          portion,
          epoch + 1,
          is_traced(result_.steps + std::ssize(under_way_))));
      if (under_way_.size() == kStepsUnderWay) {
        finish_one();
      }
      result_.interrupted =
          trainer_.gather_.any(options_.stop != nullptr && *options_.stop);
    }
    while (!under_way_.empty()) {
      finish_one();
    }
  }

  void finish_one() {
    Pending pending = std::move(under_way_.front());
    under_way_.pop_front();
    const StepDone done = trainer_.finish_step(pending);
    if (pending.timeline) {
      result_.timelines.push_back(*std::move(pending.timeline));
    }
    durations_.push_back(done.duration);
    computing_.push_back((1 - done.bubble) * done.duration);
    ++result_.steps;
    events_.on(done);
  }

  // `before`: steps that were started before it.
  bool is_traced(std::int64_t before) const {
    return before >= 1 && before <= options_.traced;
  }

  bool evaluates_after(std::int64_t epoch) const {
    return options_.evaluate_every > 0 && result_.steps < total_ &&
           !result_.interrupted && (epoch + 1) % options_.evaluate_every == 0;
  }

  void evaluate() {
    if (options_.test == nullptr) {
      return;
    }
    events_.on(Evaluated{.step = trainer_.steps_,
                         .data = "test",
                         .evaluation = trainer_.evaluate(*options_.test)});
  }

  void conclude() {
    const std::chrono::duration<double> spent = Clock::now() - start_;
    result_.median_step = median(durations_);
    events_.on(RunEnded{
        .steps = result_.steps,
        .interrupted = result_.interrupted,
        .duration = {spent.count()},
        .median_step = result_.median_step,
        .median_computing = median(computing_),
        .predicted_step = predicted_step(),
        .predicted_computing = predicted_computing(),
    });
  }

  TrainerCore& trainer_;
  const Dataset& data_;
  const FitOptions& options_;
  EventSink& events_;
  std::int64_t total_;
  Clock::time_point start_;
  std::deque<Pending> under_way_;
  std::vector<Seconds> durations_;
  std::vector<Seconds> computing_;
  FitResult result_;
};

FitResult TrainerCore::fit(const Dataset& data,
                           const FitOptions& options,
                           EventSink& events) {
  if (data.size() == 0) {
    fail("there are no samples to train on", "Give a dataset that has some.");
  }
  return Fit(*this, data, options, events).run();
}

}  // namespace cleave
