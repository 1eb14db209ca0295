#pragma once

#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "cleave/comm/world.h"
#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/event.h"
#include "cleave/train/gather.h"
#include "cleave/train/rank_thread.h"
#include "cleave/train/step_timeline.h"
#include "cleave/train/trainer.h"

namespace cleave {

// What Trainer (trainer.h) is made of. Not thread-safe.
class TrainerCore {
 public:
  // `world`: the ranks of a job; null: all ranks are threads of this process.
  TrainerCore(const Model& model,
              const Plan& plan,
              const Devices& devices,
              const Training& training,
              World* world);
  ~TrainerCore();

  // One optimizer step over a batch of any size.
  StepDone step(const Batch& batch);

  // Steps over the whole data, epoch by epoch; tells `events` about them.
  FitResult fit(const Dataset& data,
                const FitOptions& options,
                EventSink& events);

  // Evaluates the network as it is now, in the pipeline.
  Evaluation evaluate(const Dataset& data);

  // See Trainer.
  std::vector<NamedTensors> stages();

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
    std::vector<std::future<PassResult>> results;
    std::int64_t samples = 0;
    std::int64_t count = 0;
    std::int64_t step = 0;
    double learning_rate = 0;
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

  void build_ranks(const Model& model, const Devices& devices);

  template <class Result>
  std::vector<std::future<Result>> submit_to_all(
      std::function<Result(RankTrainer&)> call);
  template <class Result>
  std::vector<Result> results_of(std::vector<std::future<Result>> futures);

  std::shared_ptr<const PassSchedule> schedule_for(int own,
                                                   int most,
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
  Training training_;
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
  int pending_calls_ = 0;                           // calls to all ranks
  std::unique_ptr<Runner> runner_;                  // of the local ranks
  std::vector<std::unique_ptr<RankThread>> ranks_;  // the local ones
  // By own and most microbatches of a replica, and whether it trains.
  std::map<std::tuple<int, int, bool>, std::shared_ptr<const PassSchedule>>
      schedules_;
  std::int64_t steps_ = 0;  // started so far
  Clock::time_point last_finish_ = Clock::now();
};

}  // namespace cleave
