#pragma once

#include "cleave/units.h"

namespace cleave {

// The variable with the file in which ranks write what they are doing.
inline constexpr const char* kStatusVariable = "CLEAVE_STATUS";

// What a rank writes there until it is connected to all others.
inline constexpr const char* kStarting = "start";

// Starts this program again as `ranks` ranks on this machine, with the
// arguments it was started with, and waits for them; that they meet, no longer
// than `patience`. Interrupting it interrupts them in good order. Throws Exit
// unless they all end well; before, it says which rank was lost. Throws Error
// where there is no MPI launcher.
void launch_ranks(int ranks, Seconds patience);

}  // namespace cleave
