#pragma once

#include <optional>
#include <vector>

#include "cleave/units.h"

// Cuts a chain of layers into stages: runs of consecutive layers, one per
// device, in order. Exact, by dynamic programming.
namespace cleave {

// What a layer adds to its stage, for one microbatch.
struct CutLayer {
  Seconds time;       // forward and backward, on a device of speed 1
  Bytes fixed;        // there all the time: parameters, gradients, states
  Bytes activations;  // for every microbatch in flight
  Bytes working;      // while the layer computes; a stage computes one at once
};

// The device of one stage.
struct CutDevice {
  double speed = 1;
  Bytes memory;       // its budget; zero: without limit
  int in_flight = 1;  // the most microbatches whose activations it holds
};

struct CutProblem {
  std::vector<CutLayer> layers;
  std::vector<Seconds> cuts;       // [i]: cost of a cut between layers i, i + 1
  std::vector<CutDevice> devices;  // one per stage
};

// The index of the first layer of every stage, or nothing when no cut fits the
// memory. A stage takes the time of its layers, divided by its device's speed,
// and the cost of the cuts at both its ends. The result is the best there is,
// in this order:
//   1. the slowest stage is as fast as possible;
//   2. the sum of the stages' times is as small as possible;
//   3. the stages are as even as possible (least sum of squared times).
// Every stage gets at least one layer. Times are counted in whole picoseconds.
std::optional<std::vector<int>> best_cut(const CutProblem& problem);

// What the stage of these layers, from `first` to before `end`, needs in
// memory: all that is fixed, the activations of its microbatches in flight, and
// the working memory of the layer that has most.
Bytes stage_memory(const CutProblem& problem, int stage, int first, int end);

}  // namespace cleave
