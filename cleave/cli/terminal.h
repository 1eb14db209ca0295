#pragma once

#include "cleave/report/console.h"
#include "cleave/units.h"

namespace cleave {

// How to draw on the terminal this program writes to, from the environment
// (NO_COLOR, TERM, COLUMNS, LANG).
ConsoleOptions console_options();

// Columns to draw in: the terminal's, or 80.
int console_width();

// Time since some fixed moment.
Seconds now();

}  // namespace cleave
