#pragma once

#include "cleave/ids.h"
#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

namespace cleave {

// Does single actions of one rank. Actions that the schedule's order allows at
// the same time may be done by several threads at the same time.
class ActionPerformer {
 public:
  virtual ~ActionPerformer() = default;

  // Does the action at this position of the row, as rank `by`.
  virtual void perform(const Row& row, std::size_t position, Rank by) = 0;

  // Whether all that the action receives has arrived.
  virtual bool has_arrived(const Action& receive) const = 0;

  // Throws the Error of a rank that waited so long for what the action
  // receives.
  [[noreturn]] virtual void fail_late(const Action& receive,
                                      Seconds patience) const = 0;
};

}  // namespace cleave
