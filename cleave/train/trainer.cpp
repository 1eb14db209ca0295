#include "cleave/train/trainer.h"

#include <algorithm>

#include "cleave/comm/thread_world.h"
#include "cleave/data/microbatches.h"
#include "cleave/data/order.h"
#include "cleave/error.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/train/rank_device.h"

namespace cleave {

Trainer::Trainer(const Model& model,
                 const Plan& plan,
                 const Devices& devices,
                 const TrainerOptions& options)
    : Trainer(model,
              plan,
              devices,
              options,
              std::make_unique<ThreadWorld>(mesh_of(plan).ranks(),
                                            options.patience),
              nullptr) {}

Trainer::Trainer(const Model& model,
                 const Plan& plan,
                 const Devices& devices,
                 const TrainerOptions& options,
                 World& world)
    : Trainer(model, plan, devices, options, nullptr, &world) {}

Trainer::Trainer(const Model& model,
                 const Plan& plan,
                 const Devices& devices,
                 const TrainerOptions& options,
                 std::unique_ptr<World> own,
                 World* world)
    : plan_(plan),
      options_(options),
      mesh_(mesh_of(plan)),
      own_world_(std::move(own)),
      world_(own_world_ ? *own_world_ : *world),
      gather_(world_) {
  check_plan(plan, model.layer_names());
  check_ranks(mesh_, devices, world_);
  if (std::ssize(world_.local()) < mesh_.ranks()) {
    // A rank to spare may have any.
    first_replica_ = last_replica_ =
        std::min(mesh_.replica_of(world_.local().front()), mesh_.replicas - 1);
  } else {
    last_replica_ = mesh_.replicas - 1;
  }
  if (plan.lend && std::ssize(world_.local()) >= mesh_.ranks()) {
    lending_.emplace(mesh_.ranks(), options.patience, [this] {
      return world_.failure() != nullptr;
    });
  }
  if (std::ssize(world_.local()) >= mesh_.ranks() &&
      mesh_.ranks() == std::ssize(devices) && take_all_cores(devices)) {
    // Its last device is the one that waits when a step begins.
    caller_cores_ = device_of(plan, mesh_, {mesh_.ranks() - 1}, devices).cores;
  }
  build_ranks(model, devices);
}

// Those of this process, each on its device.
void Trainer::build_ranks(const Model& model, const Devices& devices) {
  std::vector<std::future<void>> built;
  for (const Rank rank : world_.local()) {
    if (rank.value >= mesh_.ranks()) {
      continue;  // the plan does without it
    }
    ranks_.push_back(std::make_unique<RankThread>(
        device_of(plan_, mesh_, rank, devices), world_));
    built.push_back(ranks_.back()->build([&, rank] {
      return std::make_unique<RankTrainer>(model,
                                           plan_,
                                           options_,
                                           world_.connect(rank),
                                           lending_ ? &*lending_ : nullptr);
    }));
  }
  for (std::future<void>& future : built) {
    future.wait();
  }
  if (world_.failure()) {
    std::rethrow_exception(world_.failure());
  }
}

Trainer::~Trainer() {
  if (unanswered_ > 0) {  // ranks may wait for others that will not come
    world_.abort(
        std::make_exception_ptr(Error("the trainer was destroyed", "")));
  }
}

template <class Result>
std::vector<std::future<Result>> Trainer::ask_all(
    std::function<Result(RankTrainer&)> question) {
  if (world_.failure()) {
    fail("the trainer stopped at an earlier error", "Make a new one to go on.");
  }
  ++unanswered_;
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
  --unanswered_;
  if (world_.failure()) {
    std::rethrow_exception(world_.failure());
  }
  std::vector<Result> results;
  results.reserve(futures.size());
  for (std::future<Result>& future : futures) {
    results.push_back(future.get());
  }
  return results;
}

std::shared_ptr<const std::vector<SharedRow>> Trainer::rows_for(
    int microbatches, bool training) {
  auto& known = rows_[{microbatches, training}];
  if (!known) {
    known = std::make_shared<const std::vector<SharedRow>>(
        training ? training_rows(plan_, schedule_of(plan_, microbatches))
                 : evaluation_rows(plan_, microbatches));
  }
  return known;
}

// The samples that the replicas of this process have of a batch.
Trainer::Portion Trainer::own_portion(std::int64_t samples) const {
  const std::vector<ReplicaShare> shares =
      shares_of(samples, mesh_.replicas, plan_.microbatches);
  const ReplicaShare& first = shares.at(first_replica_);
  const ReplicaShare& last = shares.at(last_replica_);
  return {first.first, last.first + last.count - first.first, samples};
}

Batch Trainer::read_portion(const Dataset& data,
                            std::span<const std::int64_t> indices,
                            const Portion& portion) const {
  const SingleThreadScope alone;
  const MemoryScope memory(batches_);
  return portion.count == 0
             ? Batch{}
             : data.get(indices.subspan(portion.first, portion.count));
}

// Over the whole batch, of which other processes may have parts.
std::int64_t Trainer::loss_count(const Batch& part) {
  std::int64_t count =
      part.targets.defined() ? options_.loss.count(part.targets) : 0;
  if (last_replica_ - first_replica_ + 1 < mesh_.replicas) {
    const std::vector<std::uint64_t> counts =
        gather_.numbers({static_cast<std::uint64_t>(count)});
    count = 0;
    for (std::ptrdiff_t i = 0; i < mesh_.ranks(); i += mesh_.places) {
      count += static_cast<std::int64_t>(counts[i]);
    }
  }
  return count;
}

Trainer::Passes Trainer::make_passes(const Batch& part,
                                     const Portion& portion,
                                     bool training,
                                     bool traced) {
  const std::int64_t count = loss_count(part);
  const std::vector<ReplicaShare> shares =
      shares_of(portion.samples, mesh_.replicas, plan_.microbatches);
  // Replicas that add up after every microbatch do so in one order.
  const bool in_one_order = training && plan_.shard == Shard::gradients;
  Passes passes(mesh_.replicas);
  for (int replica = first_replica_; replica <= last_replica_; ++replica) {
    const ReplicaShare& share = shares[replica];
    auto pass = std::make_shared<Pass>();
    if (share.count > 0) {
      const std::int64_t start = share.first - portion.first;
      pass->microbatches =
          split_batch({part.inputs.narrow(0, start, share.count),
                       part.targets.narrow(0, start, share.count)},
                      share.microbatches);
    }
    const int of_rows =
        in_one_order ? shares.front().microbatches : share.microbatches;
    if (of_rows > 0) {
      pass->rows = rows_for(of_rows, training);
    }
    pass->first = share.first_microbatch;
    pass->most = shares.front().microbatches;
    pass->loss = &options_.loss;
    pass->count = count;
    pass->seed = options_.seed;
    pass->step = steps_;
    pass->traced = traced;
    passes[replica] = std::move(pass);
  }
  return passes;
}

Trainer::Pending Trainer::start_step(const Batch& part,
                                     const Portion& portion,
                                     std::int64_t epoch,
                                     bool traced) {
  ++steps_;
  const Passes passes = make_passes(part, portion, true, traced);
  return {
      .results = ask_all<StepResult>([passes](RankTrainer& trainer) {
        return trainer.train(*passes[trainer.replica()]);
      }),
      .samples = portion.samples,
      .count = std::max<std::int64_t>(1, passes[first_replica_]->count),
      .step = steps_,
      .epoch = epoch,
      .timeline = traced ? std::optional(StepTimeline{}) : std::nullopt,
  };
}

StepDone Trainer::finish_step(Pending& pending) {
  std::vector<StepResult> results =
      gather_.results(answers(std::move(pending.results)));
  results.resize(mesh_.ranks());
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> spent = now - last_finish_;
  last_finish_ = now;
  Seconds busy;
  double loss_sum = 0;  // only the ranks of the last stage have one
  std::vector<Bytes> peaks;
  for (const StepResult& result : results) {
    busy += result.busy;
    loss_sum += result.loss_sum;
    peaks.push_back(result.peak_memory);
  }
  if (pending.timeline) {
    pending.timeline = timeline_of(results, mesh_.places, pending.step);
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
      .peak_memory = peaks,
  };
}

StepDone Trainer::step(const Batch& batch) {
  last_finish_ = Clock::now();
  const Portion portion = own_portion(batch.inputs.size(0));
  split_batch(batch, 1);  // throws where inputs and targets do not match
  Pending pending =
      start_step({batch.inputs.narrow(0, portion.first, portion.count),
                  batch.targets.narrow(0, portion.first, portion.count)},
                 portion,
                 1,
                 /*traced=*/false);
  return finish_step(pending);
}

Evaluation Trainer::evaluate(const Dataset& data) {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t count = 0;
  const BatchOrder order(data.size(), plan_.batch, 0, {.shuffle = false});
  for (std::int64_t i = 0; i < order.steps(); ++i) {
    const Portion portion = own_portion(std::ssize(order.indices(i)));
    const Passes passes =
        make_passes(read_portion(data, order.indices(i), portion),
                    portion,
                    /*training=*/false,
                    /*traced=*/false);
    for (const StepResult& result : gather_.results(
             answers(ask_all<StepResult>([passes](RankTrainer& trainer) {
               return trainer.evaluate(*passes[trainer.replica()]);
             })))) {  // only the ranks of the last stage found something
      loss += result.loss_sum;
      correct += result.correct;
    }
    count += passes[first_replica_]->count;
  }
  count = std::max<std::int64_t>(1, count);
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
  States all;
  for (States& states : answers(ask_all<States>(
           [](RankTrainer& trainer) { return trainer.state(); }))) {
    all.merge(states);  // of the replicas, the first one's
  }
  std::vector<NamedTensors> stages(plan_.stages.size());
  for (auto& [stage, state] : gather_.states(std::move(all))) {
    stages[stage.value] = std::move(state);
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

std::vector<std::uint64_t> Trainer::fingerprints() {
  std::vector<std::uint64_t> prints =
      gather_.numbers(answers(ask_all<std::uint64_t>(
          [](RankTrainer& trainer) { return trainer.fingerprint(); })));
  prints.resize(mesh_.ranks());
  return prints;
}

std::vector<Bytes> Trainer::optimizer_states() {
  std::vector<Bytes> states;
  for (const std::uint64_t bytes :
       gather_.numbers(answers(ask_all<std::uint64_t>([](RankTrainer& trainer) {
         return static_cast<std::uint64_t>(trainer.optimizer_states().value);
       })))) {
    states.push_back({static_cast<std::int64_t>(bytes)});
  }
  states.resize(mesh_.ranks());
  return states;
}

std::vector<Bytes> Trainer::peak_memory() const {
  std::vector<Bytes> peaks;
  for (const auto& rank : ranks_) {
    peaks.push_back(rank->peak_memory());
  }
  return peaks;
}

}  // namespace cleave
