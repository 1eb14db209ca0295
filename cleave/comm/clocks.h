#pragma once

#include <functional>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/device/clock.h"
#include "cleave/units.h"

namespace cleave {

// How far every rank's clock is ahead of rank 0's, by rank, on every rank; all
// call it together. Found by asking: right to half of the fastest answer's way
// there and back. A difference that is smaller than that counts as none.
std::vector<Seconds> clock_leads(
    Transport& ranks, const std::function<Seconds()>& clock = steady_now);

}  // namespace cleave
