#pragma once

#include "cleave/schedule/schedule.h"

// Passes: a schedule in, a new one out.
namespace cleave {

// Adds to a schedule of F, B and W all else that a step does: messages right
// before what needs them and right behind what makes them, G once a stage's
// last gradient is there, U once the stage can be updated. Its graph and its
// synchronisation say what that is. Where replicas sum or gradients are
// clipped, updates stand behind the rank's last backward. Throws Error where
// `passes` has other actions already.
Schedule complete(const Schedule& passes);

// F, B and W alone.
Schedule passes_of(const Schedule& schedule);

// The schedule of a replica that has only the first `own` microbatches, where
// no replica has more than `most`.
Schedule with_microbatches(const Schedule& schedule, int own, int most);

// Every microbatch once through the stages of `schedule` and no way back, to
// evaluate a network without training it, complete. Mirrors take the buffers of
// the first one before.
Schedule evaluation_of(const Schedule& schedule);

}  // namespace cleave
