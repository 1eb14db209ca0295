#pragma once

#include <cstdint>
#include <string>

#include "cleave/units.h"

namespace cleave {

// How far something has come.
struct Progress {
  std::string label = {};
  std::int64_t done = 0;
  std::int64_t total = 0;  // zero: unknown
  Seconds elapsed;
  std::string unit = "step";
  std::string note = {};  // stands last in the brackets
};

// tqdm's line, at most `width` columns wide:
//   train:  42%|████▏     | 42/100 [00:12<00:16,  3.41step/s, loss=0.412]
// Without a total, or past it, there is no bar and no time left. With a width
// of zero the bar has ten cells. `ascii` draws the bar with digits and #.
std::string progress_line(const Progress& progress, int width, bool ascii);

// "01:05"; from an hour on "1:01:05". Fractions are cut off.
std::string clock_text(Seconds seconds);

}  // namespace cleave
