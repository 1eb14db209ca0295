#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cleave/schedule/simulate.h"

namespace cleave {

// One step as it was measured: of every rank what it computed and, where they
// were measured, its messages and collectives. A receive's span is the time it
// waited, a send's the time it took to hand its values over.
struct StepTrace {
  std::int64_t step = 0;
  Timeline measured;
  Seconds zero;  // when the timeline's time zero was, on the run's clock
};

// The steps as a trace that ui.perfetto.dev and chrome://tracing open: JSON in
// the trace event format, one event per line. One lane shows the steps, each up
// to the start of the next; every device has a lane for what it computes, one
// for its messages and one for sums and other work with its mirrors. Arrows
// follow each microbatch from device to device and back. Times are microseconds
// from the first span of all, to the nanosecond. A rank without a name in
// `devices` is "rank 2". REQUIRES: steps in the order of the run, finite times,
// spans of one lane that do not overlap.
std::string trace_json(const std::vector<StepTrace>& steps,
                       const std::vector<std::string>& devices);

}  // namespace cleave
