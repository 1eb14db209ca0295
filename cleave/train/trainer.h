#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cleave/data/dataset.h"
#include "cleave/device/device.h"
#include "cleave/event.h"
#include "cleave/model/model.h"
#include "cleave/optimizer/training.h"
#include "cleave/plan/plan.h"
#include "cleave/schedule/simulate.h"

namespace cleave {

class TrainerCore;
class World;

struct FitOptions {
  std::int64_t epochs = 1;
  std::int64_t steps = 0;  // stop after so many; 0: after the epochs
  bool shuffle = true;
  const Dataset* test = nullptr;    // evaluated before and after training,
  std::int64_t evaluate_every = 0;  // and every so many epochs; 0: not between
  std::int64_t traced = 0;          // steps to trace, from the second one on
  // Once true, training ends after the steps under way. Null: never.
  const std::atomic<bool>* stop = nullptr;
};

// How many steps fit() will take.
std::int64_t planned_steps(std::int64_t samples,
                           std::int64_t batch,
                           const FitOptions& options);

// When every rank did what in a step, in its row or another's, messages
// included, from the step's first computation on.
struct StepTimeline {
  std::int64_t step = 0;
  Timeline measured;
  Seconds zero;  // when that was, on the clock of rank 0's host
};

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
  // Builds every stage on its device, all in this process. The plan's first
  // rank runs on the first device, and so on.
  Trainer(const Model& model,
          const Plan& plan,
          const Devices& devices,
          const Training& training);

  // The same on the ranks of `world`, which must outlive it: here those that
  // are local. Every process makes its own trainer with the same arguments, and
  // calls the same functions in the same order with the same data; all get the
  // same answers. `devices` has one for every rank.
  Trainer(const Model& model,
          const Plan& plan,
          const Devices& devices,
          const Training& training,
          World& world);
  ~Trainer();
  Trainer(Trainer&& other) noexcept;

  // One optimizer step over a batch of any size.
  StepDone step(const Batch& batch);

  // Steps over the whole data, epoch by epoch, with events of them.
  FitResult fit(const Dataset& data,
                const FitOptions& options,
                EventSink& events);

  // The same without events.
  FitResult fit(const Dataset& data, const FitOptions& options = {});

  // Evaluates the network as it is now, in the pipeline.
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
  std::unique_ptr<TrainerCore> core_;
};

}  // namespace cleave
