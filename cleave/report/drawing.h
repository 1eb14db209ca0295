#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cleave/report/paint.h"
#include "cleave/schedule/simulate.h"

// What all drawings of timelines share.
namespace cleave {

// What mirrors do together, beside computing and messages: sums over replicas,
// and weights or buffers that they hand each other.
bool is_collective(Op op);

// When the first computation starts: where a drawing begins.
Seconds first_start(const Timeline& timeline);

// From there on: as long as the timeline says, and at least to the end of all
// computing and all collectives, which may end behind the last update.
Seconds drawn_length(const Timeline& timeline);

// The stages a rank computes, each once, in ascending order.
std::vector<StageId> stages_of(const std::vector<Span>& row);

// "stage 2"; a rank that has several stages, or none, goes by its own number.
std::string row_name(const Timeline& timeline, std::size_t rank);

// The ops in the rows, each once, in the order of the op table.
std::vector<Op> ops_of(const std::vector<std::vector<Span>>& rows);

// "bubble 33.3 %".
std::string bubble_text(const Timeline& timeline);

// ---- SVG --------------------------------------------------------------------

inline constexpr std::string_view kIdle = "#e9edf1";
inline constexpr std::string_view kText = "#24303c";
inline constexpr std::string_view kFaintText = "#5c6975";
inline constexpr std::string_view kLine = "#d3d9df";

// A style element for a drawing that follows the viewer's dark mode. Its rules
// go by the classes "ground", "idle", "ink", "faint", "line" and "mark".
std::string dark_style();

// Where a time stands, from left to right.
struct TimeScale {
  Seconds origin;
  double left = 0;        // where the origin stands
  double per_second = 0;  // the width of a second

  double x(Seconds time) const {
    return left + (time - origin).value * per_second;
  }
};

// Where a row stands, from its top down.
struct RowPlace {
  double y = 0;
  double height = 0;
};

// One group per computation: its hover text, a block as wide as it is long in
// the colour of its kind and stage, the microbatch or "U" where it fits.
std::string compute_blocks(const std::vector<Span>& row,
                           const TimeScale& scale,
                           RowPlace place);

// One group per message and collective: its hover text and a thin mark below
// the row, above `bottom`. A rank often waits for a step's first message
// since before the step began; only what lies between the scale's left edge and
// `right` is drawn.
std::string network_marks(const std::vector<Span>& row,
                          const TimeScale& scale,
                          RowPlace place,
                          double bottom,
                          double right);

// "B0 of stage 3: starts at 4.00 ms, takes 2.00 ms".
std::string hover_text(const Span& span, Seconds origin);

// A sample of a colour and what it means. A css of "idle" follows dark mode.
struct LegendItem {
  std::string colour;
  std::string words;
  std::string css = {};
};

// Samples of the blocks, and of the thin marks. What has one colour shares a
// sample: "norm, update".
std::vector<LegendItem> block_items(const std::vector<Op>& ops);
std::vector<LegendItem> mark_items(const std::vector<Op>& ops);

// One line of samples whose upper left corner is at (x, y), and about how wide
// it is.
std::string legend(const std::vector<LegendItem>& items, double x, double y);
double legend_width(const std::vector<LegendItem>& items);

// Marks at even times from zero up to `length`.
struct Ticks {
  std::string_view unit;       // "ms"
  std::vector<Seconds> times;  // none where the length is zero
  std::vector<std::string> labels;
};
Ticks ticks(Seconds length);

// The ticks below `y`, with their numbers; the unit stands left of them.
std::string time_axis(const Ticks& marks, const TimeScale& scale, double y);

}  // namespace cleave
