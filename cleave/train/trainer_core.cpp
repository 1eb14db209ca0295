#include "cleave/train/trainer_core.h"

#include <algorithm>

#include "cleave/comm/thread_world.h"
#include "cleave/data/microbatches.h"
#include "cleave/data/order.h"
#include "cleave/error.h"
#include "cleave/plan/measure/device_specs.h"
#include "cleave/plan/predict.h"
#include "cleave/schedule/complete.h"

namespace cleave {

namespace {

std::string too_few(const Mesh& mesh, std::int64_t there) {
  return "the plan uses " + std::to_string(mesh.ranks()) +
         " devices, but there are " + std::to_string(there);
}

// The plan, if it is one of the model that these devices can run.
const Plan& checked(const Plan& plan,
                    const Model& model,
                    const Devices& devices) {
  check_plan(plan, model.layer_names(), layer_ties(model));
  const Mesh mesh = mesh_of(plan);
  if (std::ssize(devices) < mesh.ranks()) {
    fail(too_few(mesh, std::ssize(devices)),
         "Give it the devices the plan was made for.");
  }
  for (const Device& device : devices) {
    if (device.threads < 1) {
      fail("device '" + device.name + "' has " +
               std::to_string(device.threads) + " threads",
           "Give it at least one.");
    }
  }
  check_budgets(devices);
  return plan;
}

void check_world(const Mesh& mesh, const World& world) {
  if (world.ranks() < mesh.ranks()) {
    fail(too_few(mesh, world.ranks()) + " ranks",
         "Start as many ranks as the plan has devices.");
  }
}

void check_training(const Plan& plan, const Training& training) {
  const bool clips = training.clip > 0;
  if (plan.schedule.synchronisation.clips != clips) {
    fail(clips ? "gradients are to be clipped, but the plan has no norms"
               : "the plan clips gradients, but the training does not",
         "Plan again with the same training.");
  }
}

}  // namespace

TrainerCore::TrainerCore(const Model& model,
                         const Plan& plan,
                         const Devices& devices,
                         const Training& training,
                         World* world)
    : plan_(checked(plan, model, devices)),
      training_(training),
      mesh_(mesh_of(plan)),
      own_world_(world != nullptr ? nullptr
                                  : std::make_unique<ThreadWorld>(
                                        mesh_.ranks(), training.patience)),
      world_(own_world_ ? *own_world_ : *world),
      gather_(world_) {
  check_world(mesh_, world_);
  check_training(plan, training);
  const bool all_are_local = std::ssize(world_.local()) >= mesh_.ranks();
  last_replica_ = mesh_.replicas - 1;
  if (!all_are_local) {
    // A rank to spare may have any.
    first_replica_ = last_replica_ =
        std::min(mesh_.replica_of(world_.local().front()), last_replica_);
  }
  runner_ = make_runner(plan, all_are_local, training.patience, [this] {
    return world_.failure() != nullptr;
  });
  if (all_are_local && mesh_.ranks() == std::ssize(devices) &&
      take_all_cores(devices)) {
    // Its last device is the one that waits when a step begins.
    caller_cores_ = devices[mesh_.ranks() - 1].cores;
  }
  build_ranks(model, devices);
}

// Those of this process, each on its device.
void TrainerCore::build_ranks(const Model& model, const Devices& devices) {
  std::vector<std::future<void>> built;
  for (const Rank rank : world_.local()) {
    if (rank.value >= mesh_.ranks()) {
      continue;  // the plan does without it
    }
    ranks_.push_back(std::make_unique<RankThread>(devices[rank.value], world_));
    built.push_back(ranks_.back()->build([&, rank] {
      return std::make_unique<RankTrainer>(
          model, plan_, training_, world_.connect(rank), *runner_);
    }));
  }
  for (std::future<void>& future : built) {
    future.wait();
  }
  if (world_.failure()) {
    std::rethrow_exception(world_.failure());
  }
}

TrainerCore::~TrainerCore() {
  if (pending_calls_ > 0) {  // ranks may wait for others that will not come
    world_.abort(
        std::make_exception_ptr(Error("the trainer was destroyed", "")));
  }
}

template <class Result>
std::vector<std::future<Result>> TrainerCore::submit_to_all(
    std::function<Result(RankTrainer&)> call) {
  if (world_.failure()) {
    fail("the trainer stopped at an earlier error", "Make a new one to go on.");
  }
  ++pending_calls_;
  std::vector<std::future<Result>> futures;
  futures.reserve(ranks_.size());
  for (const auto& rank : ranks_) {
    futures.push_back(rank->template submit_call<Result>(call));
  }
  return futures;
}

// Waits for all ranks even when one failed, so that none still works on what
// the caller may free, and reports the failure that came first.
template <class Result>
std::vector<Result> TrainerCore::results_of(
    std::vector<std::future<Result>> futures) {
  for (const std::future<Result>& future : futures) {
    future.wait();
  }
  --pending_calls_;
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

std::shared_ptr<const PassSchedule> TrainerCore::schedule_for(int own,
                                                              int most,
                                                              bool training) {
  auto& known = schedules_[{own, most, training}];
  if (!known) {
    const Schedule whole =
        training ? plan_.schedule : evaluation_of(plan_.schedule);
    known = std::make_shared<const PassSchedule>(
        with_microbatches(whole, own, most));
  }
  return known;
}

// The samples that the replicas of this process have of a batch.
TrainerCore::Portion TrainerCore::own_portion(std::int64_t samples) const {
  const std::vector<ReplicaShare> shares =
      shares_of(samples, mesh_.replicas, plan_.schedule.microbatches);
  const ReplicaShare& first = shares.at(first_replica_);
  const ReplicaShare& last = shares.at(last_replica_);
  return {first.first, last.first + last.count - first.first, samples};
}

Batch TrainerCore::read_portion(const Dataset& data,
                                std::span<const std::int64_t> indices,
                                const Portion& portion) const {
  const SingleThreadScope alone;
  const MemoryScope memory(batches_);
  return portion.count == 0
             ? Batch{}
             : data.get(indices.subspan(portion.first, portion.count));
}

// Over the whole batch, of which other processes may have parts.
std::int64_t TrainerCore::loss_count(const Batch& part) {
  std::int64_t count =
      part.targets.defined() ? training_.loss.count(part.targets) : 0;
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

TrainerCore::Passes TrainerCore::make_passes(const Batch& part,
                                             const Portion& portion,
                                             bool training,
                                             bool traced) {
  const std::int64_t count = loss_count(part);
  const std::int64_t step = training ? steps_ + 1 : steps_;
  const double learning_rate = training ? training_.learning_rate(step) : 0;
  const std::vector<ReplicaShare> shares =
      shares_of(portion.samples, mesh_.replicas, plan_.schedule.microbatches);
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
    pass->schedule =
        schedule_for(share.microbatches, shares.front().microbatches, training);
    pass->first = share.first_microbatch;
    pass->loss = &training_.loss;
    pass->count = count;
    pass->seed = training_.seed;
    pass->step = step;
    pass->learning_rate = learning_rate;
    pass->clip = training_.clip;
    pass->traced = traced;
    passes[replica] = std::move(pass);
  }
  return passes;
}

TrainerCore::Pending TrainerCore::start_step(const Batch& part,
                                             const Portion& portion,
                                             std::int64_t epoch,
                                             bool traced) {
  const Passes passes = make_passes(part, portion, true, traced);
  ++steps_;
  const Pass& pass = *passes[first_replica_];
  return {
      .results = submit_to_all<PassResult>([passes](RankTrainer& trainer) {
        return trainer.run(*passes[trainer.replica()]);
      }),
      .samples = portion.samples,
      .count = std::max<std::int64_t>(1, pass.count),
      .step = pass.step,
      .learning_rate = pass.learning_rate,
      .epoch = epoch,
      .timeline = traced ? std::optional(StepTimeline{}) : std::nullopt,
  };
}

StepDone TrainerCore::finish_step(Pending& pending) {
  std::vector<PassResult> results =
      gather_.results(results_of(std::move(pending.results)));
  results.resize(mesh_.ranks());
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> spent = now - last_finish_;
  last_finish_ = now;
  Seconds busy;
  double loss_sum = 0;         // only the ranks of the last stage have one
  std::optional<double> norm;  // of every rank with a stage the same
  std::vector<Bytes> peaks;
  for (const PassResult& result : results) {
    norm = result.gradient_norm ? result.gradient_norm : norm;
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
      .learning_rate = pending.learning_rate,
      .gradient_norm = norm,
      .duration = {spent.count()},
      .bubble = std::clamp(1 - busy.value / (ranks * spent.count()), 0.0, 1.0),
      .peak_memory = peaks,
  };
}

StepDone TrainerCore::step(const Batch& batch) {
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

Evaluation TrainerCore::evaluate(const Dataset& data) {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t count = 0;
  const BatchOrder order(
      data.size(), evaluation_batch(plan_), 0, {.shuffle = false});
  for (std::int64_t i = 0; i < order.steps(); ++i) {
    const Portion portion = own_portion(std::ssize(order.indices(i)));
    const Passes passes =
        make_passes(read_portion(data, order.indices(i), portion),
                    portion,
                    /*training=*/false,
                    /*traced=*/false);
    for (const PassResult& result : gather_.results(results_of(
             submit_to_all<PassResult>([passes](RankTrainer& trainer) {
               return trainer.run(*passes[trainer.replica()]);
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

std::vector<NamedTensors> TrainerCore::stages() {
  using States = std::map<StageId, NamedTensors>;
  States all;
  for (States& states : results_of(submit_to_all<States>(
           [](RankTrainer& trainer) { return trainer.state(); }))) {
    all.merge(states);  // of the replicas, the first one's
  }
  std::vector<NamedTensors> stages(plan_.stages.size());
  for (auto& [stage, state] : gather_.states(std::move(all))) {
    stages[stage.value] = std::move(state);
  }
  return stages;
}

std::vector<std::uint64_t> TrainerCore::fingerprints() {
  std::vector<std::uint64_t> prints =
      gather_.numbers(results_of(submit_to_all<std::uint64_t>(
          [](RankTrainer& trainer) { return trainer.fingerprint(); })));
  prints.resize(mesh_.ranks());
  return prints;
}

std::vector<Bytes> TrainerCore::optimizer_states() {
  std::vector<Bytes> states;
  for (const std::uint64_t bytes : gather_.numbers(
           results_of(submit_to_all<std::uint64_t>([](RankTrainer& trainer) {
             return static_cast<std::uint64_t>(
                 trainer.optimizer_states().value);
           })))) {
    states.push_back({static_cast<std::int64_t>(bytes)});
  }
  states.resize(mesh_.ranks());
  return states;
}

std::vector<Bytes> TrainerCore::peak_memory() const {
  std::vector<Bytes> peaks;
  for (const auto& rank : ranks_) {
    peaks.push_back(rank->peak_memory());
  }
  return peaks;
}

}  // namespace cleave
