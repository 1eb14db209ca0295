#pragma once

#include "cleave/train/runner.h"

namespace cleave {

// Ranks that are threads of one process do each other's work where they would
// have to wait: of the rows in progress, a rank without work does the next
// actions. Nothing outside this folder knows how.
std::unique_ptr<Runner> make_stealing(const Plan& plan,
                                      Seconds patience,
                                      std::function<bool()> stopped);

}  // namespace cleave
