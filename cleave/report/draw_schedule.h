#pragma once

#include <string>

#include "cleave/schedule/simulate.h"

namespace cleave {

// For a terminal: one line per rank, time from left to right, every action as
// wide as it is long, and below them the time, the legend and the bubble. The
// ranks' lines take at most `width` columns; an action too short for its label
// shows less of it. UTF-8.
//
//   stage 0  F0F1····B0══··B1══
//   stage 1  ··F0B0══F1B1══····
std::string draw_text(const Timeline& timeline, int width);

// The same as an SVG image that needs nothing else: no scripts, no fonts.
// Pointing at an action tells its name, start and duration. Where a rank has
// several stages, a mark at the foot of an action stands further right the
// later its stage.
std::string draw_svg(const Timeline& timeline, const std::string& title);

}  // namespace cleave
