#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/device/memory.h"
#include "cleave/plan/measure/profiler.h"
#include "cleave/stage/stage.h"

// For the profiler only.
namespace cleave {

// What all probes of one device share. Outlives them.
struct ProbeSetup {
  const Batch& batch;  // a microbatch
  const Training& training;
  std::shared_ptr<DeviceMemory> memory;
};

// A value that leaves a layer.
struct LayerOutput {
  at::Tensor value;  // a copy, in no device's memory
  int input = -1;    // the input that it is, passed on; below zero: a new value
  Bytes loose;       // of a new value, what this layer's backward does not keep
};

// What a layer's forward leaves in memory.
struct Footprint {
  std::vector<LayerOutput> outputs;
  std::vector<bool> keeps;  // by input: whether backward needs it
  Bytes made;               // new outputs, and what else backward needs
};

// Ones like these values, as gradients; undefined where none is wanted.
Values ones_for(const Values& values);

// In the memory of the thread's device, if it has one.
Values copies_of(const Values& values);

Bytes bytes_of(const Values& values);

// One layer as a stage of its own, in the device's memory. Not thread-safe.
class LayerProbe {
 public:
  LayerProbe(const Model& model, int layer, const ProbeSetup& setup);

  // Equal for layers that must cost the same.
  std::string kind(const Values& inputs) const;

  // Runs forward once, in training.
  Footprint footprint(const Values& inputs);

  // Runs whole passes and fills in what they need and keep for W. REQUIRES: no
  // other pass has run.
  void measure_needs(const Values& inputs, LayerCost& cost);

  // A microbatch's pass: F, B and W, as those of a stage. Passes of other
  // microbatches may run in between.
  Values forward(Microbatch microbatch, Values inputs);
  Values backward(Microbatch microbatch, Values gradients);
  void weights(Microbatch microbatch);

  // Applies the gradients of all passes so far, and drops them. REQUIRES: no
  // pass is open.
  void update();

  Bytes parameter_bytes() const;

  // Of parameters in another precision, and of the optimizer's counters: one
  // per parameter.
  Bytes copied_bytes() const;

 private:
  void drop_gradients();
  void measure_pass(const Values& inputs, LayerCost& cost);
  Bytes live_without_copies() const;
  Bytes freed_by_dropping(at::Tensor& value) const;

  const ProbeSetup& setup_;
  Stage stage_;
  int layer_;
  bool is_last_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;  // null without parameters
};

}  // namespace cleave
