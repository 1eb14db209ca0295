#pragma once

#include <string>

#include "cleave/schedule/simulate.h"

namespace cleave {

// For a terminal: one line per rank, time from left to right, every computation
// as wide as it is long, and below them the time, the legend and the bubble. A
// rank that does something with its mirrors has a second line for that.
// Messages are not drawn. The ranks' lines take at most `width` columns; an
// action too short for its label shows less of it. UTF-8.
//
//   stage 0  F0F1····B0══··B1══··U━
//                              G0╌
//   stage 1  ··F0B0══F1B1══··U━····
//                          G0╌
std::string draw_text(const Timeline& timeline, int width);

// The same as an SVG image that needs nothing else: no scripts, no fonts.
// Pointing at an action tells its name, start and duration. Messages and
// collectives are thin marks below their rank. Where a rank has several stages,
// the later ones are darker.
std::string draw_svg(const Timeline& timeline, const std::string& title);

}  // namespace cleave
