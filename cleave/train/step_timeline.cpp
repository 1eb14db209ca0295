#include "cleave/train/step_timeline.h"

#include <algorithm>
#include <limits>

#include "cleave/schedule/op.h"
#include "cleave/train/pass.h"

namespace cleave {

StepTimeline timeline_of(const std::vector<PassResult>& results,
                         int places,
                         std::int64_t step) {
  StepTimeline found{.step = step};
  Timeline& measured = found.measured;
  measured.rows.resize(results.size());
  measured.busy.resize(results.size());
  Seconds first{std::numeric_limits<double>::infinity()};
  Seconds last;
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (const auto& [span, by] : results[i].timed_actions) {
      if (is_compute(span.action.op)) {
        first = std::min(first, span.start);
        last = std::max(last, span.end);
      }
    }
  }
  found.zero = first;
  measured.length = last - first;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::size_t pipeline = i - i % places;
    for (const auto& [span, by] : results[i].timed_actions) {
      const std::size_t row = pipeline + static_cast<std::size_t>(by.value);
      measured.rows[row].push_back(
          {span.action, span.start - first, span.end - first});
      measured.busy[row] +=
          is_compute(span.action.op) ? span.end - span.start : Seconds{};
    }
  }
  for (std::vector<Span>& row : measured.rows) {
    std::ranges::stable_sort(row, {}, &Span::start);
  }
  return found;
}

}  // namespace cleave
