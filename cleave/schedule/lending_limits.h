#pragma once

#include <vector>

#include "cleave/schedule/simulate.h"
#include "cleave/schedule/turns.h"
#include "cleave/units.h"

namespace cleave {

// For every rank, the memory that its row should be allowed where ranks lend:
// little more than it takes at any time, and as much as lets them be as fast as
// the rows' own limits, above which it never is. Found by steps on paper that
// are disturbed in many ways. `in_order`: what each row needs, with what waits,
// where all is done in order. `beside`: what each rank needs beside its row,
// always. Throws Error when the costs do not match the stages.
std::vector<Bytes> lending_limits(const std::vector<SharedRow>& rows,
                                  const ScheduleCosts& costs,
                                  const std::vector<Bytes>& in_order,
                                  const std::vector<Bytes>& beside);

}  // namespace cleave
