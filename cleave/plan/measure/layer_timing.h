#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cleave/plan/measure/layer_probe.h"

// For the profiler only.
namespace cleave {

// How long every F, B, W and update of a layer took.
struct TimeSamples {
  std::vector<Seconds> forward;
  std::vector<Seconds> backward;
  std::vector<Seconds> weight;
  std::vector<Seconds> update;
};

// Times layers in whole steps of several microbatches, one layer after the
// other, as in a stage. Each takes the outputs of the one before, and finds in
// the caches what a stage of all of them would leave there. Not thread-safe.
class LayerTiming {
 public:
  // The kind of the empty stage, which is always timed too.
  static constexpr int kEmpty = -1;

  explicit LayerTiming(const ProbeSetup& setup);

  // A layer behind those that were added before. `kind` is the same for layers
  // that must cost the same. Takes copies of `inputs` where the outputs of the
  // layer before do not fit.
  void add(const Model& model, int layer, int kind, const Values& inputs);

  // Takes enough steps for the medians.
  void take_steps();

  void take_step();

  // Of all layers of the kind; none where it is not timed.
  std::optional<Seconds> median(int kind,
                                std::vector<Seconds> TimeSamples::*part) const;

 private:
  struct TimedLayer {
    int kind;
    std::unique_ptr<LayerProbe> probe;
    Values inputs;
    Values seeds;  // gradients, where those of the layer behind do not fit
    TimeSamples times;
  };

  void forward(Microbatch microbatch);
  void backward(Microbatch microbatch);
  void weights(Microbatch microbatch);
  void update();

  const ProbeSetup& setup_;
  Model empty_;
  std::vector<TimedLayer> layers_;
};

}  // namespace cleave
