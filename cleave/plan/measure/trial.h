#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/device/memory.h"
#include "cleave/plan/measure/profiler.h"
#include "cleave/stage/stage.h"

// Layers on trial. For the profiler only.
namespace cleave {

// A value that leaves a layer.
struct TrialOutput {
  at::Tensor value;  // a copy, in no device's memory
  int input = -1;    // which one it is, passed on
  Bytes loose;       // a new one: what is free again when nobody else keeps it
};

// What a layer's forward leaves in memory.
struct Footprint {
  std::vector<TrialOutput> outputs;
  std::vector<bool> keeps;  // by input: for its backward
  Bytes made;  // its new outputs, and what else it keeps for backward
};

// What one turn takes of memory, as LayerCost has it.
struct TurnBytes {
  Bytes kept_for_weights;
  Bytes working;
  Bytes backward_need;
  Bytes weight_need;
};

struct Needs {
  TurnBytes turn;
  Bytes whole;  // by a backward that leaves nothing to weights
  Bytes first_whole;
  Bytes first_weight;
};

// What comes out of a part of a turn, and what that took.
struct TimedValues {
  Values values;
  Seconds time;
};

// What the parts of a turn take.
struct Timing {
  Seconds forward;
  Seconds backward;
  Seconds weight;
  Seconds update;
};

// Gradients of values like these, of ones; undefined where none is wanted.
Values ones_for(const Values& values);

// In the memory of the thread's device, if it has one.
Values copies_of(const Values& values);

Bytes bytes_of(const Values& values);

// Runs a layer, or some that follow each other, as a stage of its own, in the
// memory given.
class Trial {
 public:
  // The layers from `first` up to `end`.
  Trial(const Model& model,
        int first,
        int end,
        const ProfileOptions& options,
        std::shared_ptr<DeviceMemory> memory);

  // Equal for layers that must cost the same.
  std::string kind(const Values& inputs) const;

  // Whether these layers and those of `next` run as one in a common stage.
  bool runs_as_one_with(const Trial& next) const {
    return stage_.network().runs_as_one_with(next.stage_.network());
  }

  // Runs it once in training, forward only.
  Footprint footprint(const Values& inputs);

  // Runs it some times in training. REQUIRES: it has had no turn yet.
  Needs needs(const Values& inputs, const Batch& batch, const Loss& loss);

  // A turn of a microbatch: these three in this order, as those of a stage.
  // Other microbatches and other trials may have theirs in between.
  TimedValues forward(Microbatch microbatch,
                      Values inputs,
                      const Batch& batch,
                      const Loss& loss);
  TimedValues backward(Microbatch microbatch, Values gradients);
  Seconds weights(Microbatch microbatch);

  // By the gradients of the turns so far; what that took. The next turn begins
  // new ones. REQUIRES: none is open.
  Seconds update();

  Bytes copied_bytes() const { return stage_.network().copied(); }
  Bytes parameter_bytes() const;

  // Of an optimizer that counts the steps of every parameter.
  Bytes count_bytes() const;

 private:
  void drop_gradients();
  void take_turn(const Values& inputs, const Batch& batch, const Loss& loss);
  Bytes freed_by_dropping(at::Tensor& value) const;

  Stage stage_;
  int first_;
  bool is_last_;
  std::shared_ptr<DeviceMemory> memory_;
  std::vector<at::Tensor> parameters_;
  std::function<void()> update_;
  TurnBytes bytes_;  // of the last turn, if no other was open
};

}  // namespace cleave
