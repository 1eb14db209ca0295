#pragma once

#include <string>

#include "cleave/report/timeline_svg.h"

namespace cleave {

// A step as a page for a browser: its title, the figures (both steps' lengths
// and bubbles, and how many times the prediction the measurement took), the
// picture of timeline_svg(), and a table of how busy every device was. One file
// that needs nothing else: no scripts, no network. Follows dark mode.
std::string timeline_page(const StepComparison& step);

}  // namespace cleave
