#pragma once

#include <vector>

#include "cleave/units.h"

// What a stage costs: the times and bytes by which schedules are compared.
namespace cleave {

// Times of what a stage does and sends in a step.
struct StageCost {
  Seconds forward;    // F of one microbatch
  Seconds backward;   // B of one microbatch that leaves the weights to W
  Seconds weight;     // W; a B without W takes `backward` and this
  Seconds update;     // U
  Seconds values;     // a message to a stage that reads its values
  Seconds gradients;  // a message to a stage whose values it reads
  Seconds reduce;     // one sum of gradients over replicas, or one gathering

  bool operator==(const StageCost&) const = default;
};

// Stages may differ. A message takes its time between its send and the action
// that needs it, and keeps neither rank busy.
struct ScheduleCosts {
  std::vector<StageCost> stages;  // one per stage
};

// Throws Error where a time is missing, below zero or not finite.
void check_costs(const ScheduleCosts& costs, int stages);

// What a stage keeps of one microbatch. Gradients of weights, which stay until
// the update, are not in it.
struct StageBytes {
  Bytes kept;              // from F to B
  Bytes kept_for_weights;  // from B to W, where the schedule has W
  // Above what there was before, at most:
  Bytes forward_need;   // while it does F
  Bytes backward_need;  // a B that leaves a W
  Bytes whole_need;     // a B that leaves none
  Bytes weight_need;    // a W
  Bytes sums;           // beside that, while gradients are made
  Bytes leaving;        // from F until the next stage takes it
  Bytes returning;      // from B until the stage before takes it
  Bytes shared;         // from B until that of the stage before has ended

  bool operator==(const StageBytes&) const = default;
};

}  // namespace cleave
