#pragma once

#include <atomic>

namespace cleave {

// Lets Ctrl-C and SIGTERM end a run in good order: the first sets the flag, a
// second ends the process at once.
const std::atomic<bool>& interrupt_flag();

// Throws Error when the flag is set: for work that has nothing to save yet.
void stop_if_interrupted();

}  // namespace cleave
