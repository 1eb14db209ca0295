#pragma once

#include "cleave/units.h"

namespace cleave {

// A moment on the host's clock, which only goes forward and which all processes
// of the host read alike. Other hosts' began elsewhere.
Seconds steady_now();

}  // namespace cleave
