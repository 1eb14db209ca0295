#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cleave/schedule/simulate.h"

namespace cleave {

// One step as it was predicted and as it was measured.
struct StepComparison {
  std::string title;                  // "gpt, 1f1b, 4 stages, step 120"
  std::optional<Timeline> predicted;  // where the plan has a prediction
  Timeline measured;
  std::vector<std::string> devices;  // one per rank; "rank 2" where missing
};

// The name of a rank's device in the comparison.
std::string device_name(const StepComparison& step, std::size_t rank);

// The stages that a rank computes: "0, 4"; empty where it has none.
std::string stages_text(const std::vector<Span>& row);

// The share of the timeline's length that a rank computes.
double busy_share(const Timeline& timeline, std::size_t rank);

// The prediction above the measurement on one axis of time, both from their
// first computation: one row per device with its computations as blocks, and
// below them, as thin marks, its collectives and, where they were measured, its
// messages. Needs
// nothing else: no scripts, no fonts. Follows the viewer's dark mode. Pointing
// at a block tells what it is. Without the title it suits a page that has one.
std::string timeline_svg(const StepComparison& step, bool with_title = true);

}  // namespace cleave
