#pragma once

#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cleave/comm/world.h"
#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/event.h"
#include "cleave/train/gather.h"
#include "cleave/train/rank_thread.h"
#include "cleave/train/step_timeline.h"

namespace cleave {

struct FitOptions {
  std::int64_t epochs = 1;
  std::int64_t steps = 0;  // stop after so many; 0: after the epochs
  bool shuffle = true;
  const Dataset* test = nullptr;    // judged before and after training,
  std::int64_t evaluate_every = 0;  // and every so many epochs; 0: not between
  std::int64_t traced = 0;          // steps to trace, from the second one on
  // Once true, training ends after the steps under way. Null: never.
  const std::atomic<bool>* stop = nullptr;
};

// How many steps fit() will take.
std::int64_t planned_steps(std::int64_t samples,
                           std::int64_t batch,
                           const FitOptions& options);

struct FitResult {
  std::int64_t steps = 0;
  bool interrupted = false;
  Seconds median_step;                  // zero when no step was taken
  std::vector<StepTimeline> timelines;  // of the traced steps
};

// Trains a model as its plan says, one thread per device: of this process, or
// of several that run the same program together. A synchronous run gives the
// bits of the one-device run; with replicas, the same sums in another order.
// After an exception the weights are those of an unfinished step, and the
// trainer refuses to go on. Not thread-safe.
class Trainer {
 public:
  // Builds every stage on its device, all in this process.
  Trainer(const Model& model,
          const Plan& plan,
          const Devices& devices,
          const TrainerOptions& options);

  // The same on the ranks of `world`, which must outlive it: here those that
  // are local. Every process makes its own trainer with the same arguments, and
  // calls the same functions in the same order with the same data; all get the
  // same answers. `devices` has one for every rank.
  Trainer(const Model& model,
          const Plan& plan,
          const Devices& devices,
          const TrainerOptions& options,
          World& world);
  ~Trainer();

  // One optimizer step over a batch of any size.
  StepDone step(const Batch& batch);

  // Steps over the whole data, epoch by epoch; tells `events` about them.
  FitResult fit(const Dataset& data,
                const FitOptions& options,
                EventSink& events);

  // Judges the network as it is now, in the pipeline.
  Evaluation evaluate(const Dataset& data);

  // Copies of every stage's weights and buffers; merged: of all, in the order
  // of the layers, as the unsplit network has them. With several processes,
  // that of rank 0 has them all, and the others have their own only.
  std::vector<NamedTensors> stages();
  NamedTensors merged();

  // One number per rank, from the bits of its weights: equal where replicas
  // are.
  std::vector<std::uint64_t> fingerprints();

  // What the optimizers of each rank keep between steps.
  std::vector<Bytes> optimizer_states();

  // Of the devices of this process.
  std::vector<Bytes> peak_memory() const;

 private:
  using Clock = std::chrono::steady_clock;

  class Fit;  // one call of fit()

  // A step the ranks are working on.
  struct Pending {
    std::vector<std::future<StepResult>> results;
    std::int64_t samples = 0;
    std::int64_t count = 0;
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    std::optional<StepTimeline> timeline;  // where the step is traced
  };

  // What each replica does with its part of a batch; null for replicas of
  // other processes.
  using Passes = std::vector<std::shared_ptr<const Pass>>;

  // What this process needs of a batch.
  struct Portion {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t samples = 0;  // of the whole batch
  };

  Trainer(const Model& model,
          const Plan& plan,
          const Devices& devices,
          const TrainerOptions& options,
          std::unique_ptr<World> own,
          World* world);
  void build_ranks(const Model& model, const Devices& devices);

  template <class Result>
  std::vector<std::future<Result>> ask_all(
      std::function<Result(RankTrainer&)> question);
  template <class Result>
  std::vector<Result> answers(std::vector<std::future<Result>> futures);

  std::shared_ptr<const std::vector<SharedRow>> rows_for(int microbatches,
                                                         bool training);
  Portion own_portion(std::int64_t samples) const;
  Batch read_portion(const Dataset& data,
                     std::span<const std::int64_t> indices,
                     const Portion& portion) const;
  std::int64_t loss_count(const Batch& part);
  Passes make_passes(const Batch& part,
                     const Portion& portion,
                     bool training,
                     bool traced);
  Pending start_step(const Batch& part,
                     const Portion& portion,
                     std::int64_t epoch,
                     bool traced);
  StepDone finish_step(Pending& pending);

  Plan plan_;
  TrainerOptions options_;
  Mesh mesh_;
  std::unique_ptr<World> own_world_;  // null where one was given
  World& world_;
  Gather gather_;
  // Where batches are read to: what the last ones had is reused.
  std::shared_ptr<DeviceMemory> batches_ = DeviceMemory::of_all();
  int first_replica_ = 0;  // of those that this process works in
  int last_replica_ = 0;
  // Where the caller stays while it fits: nowhere where it has a core of its
  // own.
  std::vector<int> caller_cores_;
  int unanswered_ = 0;              // questions to all ranks
  std::optional<Lending> lending_;  // among the ranks, where they do
  std::vector<std::unique_ptr<RankThread>> ranks_;  // the local ones
  std::map<std::pair<int, bool>, std::shared_ptr<const std::vector<SharedRow>>>
      rows_;                // by microbatches, and whether it learns
  std::int64_t steps_ = 0;  // started so far
  Clock::time_point last_finish_ = Clock::now();
};

}  // namespace cleave
