#pragma once

#include "cleave/comm/transport.h"
#include "cleave/units.h"

namespace cleave {

// What messages between neighbouring ranks cost. The defaults are for one
// process, where a message is a pointer handed over.
struct MessageSpeed {
  Seconds latency{5e-6};
  double bandwidth = 1e12;  // bytes per second
  // Gradients that replicas add up, in bytes per second.
  double sum_bandwidth = 2e9;
};

// Measures it, between the slowest two neighbours. Every rank calls it, and
// all get the same answer.
MessageSpeed measure_messages(Transport& ranks);

}  // namespace cleave
