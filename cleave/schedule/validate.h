#pragma once

#include <string>
#include <vector>

#include "cleave/schedule/schedule.h"

namespace cleave {

struct Problem {
  Rank rank;
  int position = 0;  // in the rank's row; its length: behind the last action
  std::string text;

  bool operator==(const Problem&) const = default;
};

// Everything that keeps the schedule from running, by rank and position. Empty:
// it can run; a schedule of F, B and W alone can when it is completed. Every
// stage must be on one rank and do every microbatch once, forward and, unless
// nothing goes back at all, backward, its weight gradients with the backward or
// later in a W. It must take the microbatches in order, so that gradients are
// summed as on one device. A complete schedule must have all that complete()
// adds, and nothing else. No action may stand before one it needs, and no rank
// may wait for what never comes.
std::vector<Problem> problems(const Schedule& schedule);

// The rows in question, each with a caret under the place:
//
//   rank 3: F1 B0 F2 B1
//           ^ F0 missing
//
// Long rows are shown only around the place.
std::string to_text(const std::vector<Problem>& problems,
                    const Schedule& schedule);

// Throws Error that shows the problems, where there are any.
void check(const Schedule& schedule);

}  // namespace cleave
