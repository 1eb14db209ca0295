#pragma once

#include "cleave/comm/transport.h"
#include "cleave/policies.h"

namespace cleave {

// Measures what messages cost, between the slowest two neighbours. Every rank
// calls it, and all get the same answer.
MessageSpeed measure_messages(Transport& ranks);

}  // namespace cleave
