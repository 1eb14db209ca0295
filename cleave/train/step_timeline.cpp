#include "cleave/train/step_timeline.h"

#include <algorithm>
#include <limits>

namespace cleave {

StepTimeline timeline_of(const std::vector<StepResult>& results,
                         std::int64_t step) {
  StepTimeline found{.step = step};
  Seconds first{std::numeric_limits<double>::infinity()};
  Seconds last;
  for (const StepResult& result : results) {
    for (const Span& span : result.spans) {
      if (is_compute(span.action.op)) {
        first = std::min(first, span.start);
        last = std::max(last, span.end);
      }
    }
  }
  found.zero = first;
  found.measured.length = last - first;
  for (const StepResult& result : results) {
    std::vector<Span>& row = found.measured.rows.emplace_back(result.spans);
    Seconds busy;
    for (Span& span : row) {
      span.start = span.start - first;
      span.end = span.end - first;
      busy += is_compute(span.action.op) ? span.end - span.start : Seconds{};
    }
    found.measured.busy.push_back(busy);
  }
  return found;
}

}  // namespace cleave
