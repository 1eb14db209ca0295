#pragma once

#include <vector>

#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

namespace cleave {

struct StageCost {
  Seconds forward;   // F of one microbatch
  Seconds backward;  // B of one microbatch that leaves the weights to W
  Seconds weight;    // W; a B without W takes `backward` and this
};

// What a compute action of the stage takes. `split`: the microbatch has a W.
Seconds time_of(Op op, const StageCost& cost, bool split);

// Times of everything a schedule does. Stages may differ; a message takes its
// time between the end of its send and the start of what waits for it, and
// keeps neither rank busy.
struct ScheduleCosts {
  std::vector<StageCost> stages;          // one per stage
  std::vector<Seconds> forward_message;   // [i]: from stage i to stage i + 1
  std::vector<Seconds> backward_message;  // [i]: from stage i + 1 to stage i
  // The optimizer's time per stage, spent by its rank behind its row. Empty:
  // none.
  std::vector<Seconds> updates;
  // By what share an action takes longer on a rank that did not do its stage's
  // last one, where ranks lend.
  double moving = 0;
  // The core that every rank computes on, where some share one; below zero: it
  // has its own. Times are then those that a stage takes while all ranks of its
  // core compute. Empty: nobody shares.
  std::vector<int> cores;
  // What is to be done beside all rows when a step has ended, by a rank that
  // waits if there is one. Only for steps that follow each other.
  Seconds between_steps;
};

// Throws Error where a time is missing, below zero or not finite.
void check_costs(const ScheduleCosts& costs, int stages);

// When an action ran.
struct Span {
  Action action;
  Seconds start;
  Seconds end;
};

struct Timeline {
  // One per rank: its compute and updates, in order.
  std::vector<std::vector<Span>> rows;
  Seconds length;             // from zero to the last end, updates included
  std::vector<Seconds> busy;  // one per rank: computing or updating

  // The share of the ranks' time, from start to end, that they wait.
  double bubble() const;
};

// Runs the schedule on paper, each rank in its own order, from time zero.
// with_messages() changes no times: values that change ranks take their
// message's time also before it. Throws Error when the validator finds a
// problem or the costs do not match the stages.
Timeline simulate(const Schedule& schedule, const ScheduleCosts& costs);

// The time from step to step when many follow each other and no rank waits for
// all: each goes from its row and updates straight into its next row. At most
// the length of one step alone; shorter where ranks that end early can begin
// early. Throws as simulate() does.
Seconds period(const Schedule& schedule, const ScheduleCosts& costs);

}  // namespace cleave
