#pragma once

namespace cleave {

// The variable that tells the ranks where to write what they do.
inline constexpr const char* kStatusVariable = "CLEAVE_STATUS";

// Starts this program again as `ranks` ranks on this machine, with the
// arguments it was started with, and waits for them. Interrupting it interrupts
// them in good order. Throws Exit unless they all end well; before, it says
// which rank was lost. Throws Error where there is no MPI launcher.
void launch_ranks(int ranks);

}  // namespace cleave
