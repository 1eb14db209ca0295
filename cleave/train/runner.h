#pragma once

#include <functional>
#include <memory>

#include "cleave/plan/plan.h"
#include "cleave/train/action_performer.h"
#include "cleave/train/pass.h"

namespace cleave {

// How a rank picks its next action. Shared by the ranks of this process, which
// call it at the same time.
class Runner {
 public:
  virtual ~Runner() = default;

  // Does all of the rank's row of the pass, and returns when it is done. One
  // call at a time for a rank.
  virtual void run(Rank rank, const Pass& pass, ActionPerformer& actions) = 0;
};

// In the order of the row.
std::unique_ptr<Runner> make_in_order();

// As the plan says. `patience`: how long nothing may happen. `stopped`: whether
// a rank failed elsewhere; asked now and then.
std::unique_ptr<Runner> make_runner(const Plan& plan,
                                    bool all_ranks_are_local,
                                    Seconds patience,
                                    std::function<bool()> stopped);

}  // namespace cleave
