#pragma once

#include <vector>

#include "cleave/schedule/costs.h"
#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

namespace cleave {

// When an action ran.
struct Span {
  Action action;
  Seconds start;
  Seconds end;
};

struct Timeline {
  // One per rank: its compute and its collectives, by their start. A measured
  // one has messages too.
  std::vector<std::vector<Span>> rows;
  Seconds length;             // from zero to the last end of computing
  std::vector<Seconds> busy;  // one per rank: computing or updating

  // The share of the ranks' time, from start to end, that they wait.
  double bubble() const;
};

// Simulates a step from time zero. A rank does its row one action after the
// other; sends and sums over replicas it only begins, and sums run one after
// the other. Takes a schedule of F, B and W too, and completes it. Throws Error
// when the validator finds a problem or the costs do not match the stages.
Timeline simulate(const Schedule& schedule, const ScheduleCosts& costs);

// The time from step to step when many follow each other: a rank begins its
// next row when its last has ended. At most the length of one step alone.
// Throws as simulate() does.
Seconds period(const Schedule& schedule, const ScheduleCosts& costs);

}  // namespace cleave
