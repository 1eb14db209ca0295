#pragma once

#include <atomic>

#include "cleave/cli/launch/status_page.h"

namespace cleave {

// Lets Ctrl-C and SIGTERM end a run in good order: the first sets the flag, a
// second ends the process at once.
const std::atomic<bool>& interrupt_flag();

// From now on, SIGTERM also marks this page: a rank that a launcher ends was
// not lost. Null: none any more.
void mark_on_signals(StatusPage* own);

// Throws Error when the flag is set: for work that has nothing to save yet.
void stop_if_interrupted();

}  // namespace cleave
