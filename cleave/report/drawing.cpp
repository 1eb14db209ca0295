#include "cleave/report/drawing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "cleave/report/svg.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

// One, two or five times a power of ten, so that about eight fit.
double tick_step(double length) {
  const double power = std::pow(10, std::floor(std::log10(length / 8)));
  for (const double step : {power, 2 * power, 5 * power}) {
    if (step * 8 >= length) {
      return step;
    }
  }
  return 10 * power;
}

// What the axis counts in.
struct TimeUnit {
  std::string_view name;
  double seconds;
};

TimeUnit unit_for(double length) {
  for (const TimeUnit unit :
       {TimeUnit{"s", 1}, TimeUnit{"ms", 1e-3}, TimeUnit{"us", 1e-6}}) {
    if (length >= unit.seconds) {
      return unit;
    }
  }
  return {"ns", 1e-9};
}

std::string compute_block(const Span& span,
                          const TimeScale& scale,
                          RowPlace row,
                          Colour colour) {
  const double full = scale.x(span.end) - scale.x(span.start);
  // A gap where there is room, and something to point at where there is none.
  const double width = full > 4 ? full - 1 : std::max(full, 0.4);
  const svg::Box box{scale.x(span.start), row.y, width, row.height};
  const OpTraits& kind = traits(span.action.op);
  const std::string label = kind.index == IndexOf::microbatch
                                ? std::to_string(span.action.index)
                                : std::string(kind.letters);
  const double size = std::min(12.0, row.height * 0.6);
  std::string out = "<g class=\"action\"><title>" +
                    svg::escaped(hover_text(span, scale.origin)) + "</title>" +
                    svg::rect(box, to_text(colour), width > 8 ? 2.5 : 0);
  // Digits are at most 0.62 of the font's size wide, and this letter little
  // more.
  if (width >= static_cast<double>(label.size()) * size * 0.62 + 3) {
    const std::string ink = to_text(paint_of(span.action.op).text);
    out += svg::text(box.x + width / 2,
                     box.y + box.height / 2 + size * 0.36,
                     label,
                     {.size = size, .fill = ink, .anchor = "middle"});
  }
  return out + "</g>\n";
}

// The sample, its words and the room to the next one.
double item_width(const LegendItem& item) {
  return 20 + 6.4 * columns(item.words) + 18;
}

// A sample per colour: what has one shares it.
std::vector<LegendItem> samples(const std::vector<Op>& ops,
                                bool (*is_shown)(Op),
                                const std::string& before) {
  std::vector<LegendItem> items;
  for (const Op op : ops) {
    if (!is_shown(op)) {
      continue;
    }
    const std::string colour = to_text(paint_of(op).first);
    const std::string words(traits(op).words);
    const auto known = std::ranges::find(items, colour, &LegendItem::colour);
    if (known == items.end()) {
      items.push_back({colour, before + words});
    } else {
      known->words += ", " + words;
    }
  }
  return items;
}

}  // namespace

bool is_collective(Op op) {
  return !is_compute(op) && !traits(op).other_end;
}

Seconds first_start(const Timeline& timeline) {
  Seconds first{std::numeric_limits<double>::infinity()};
  for (const auto& row : timeline.rows) {
    for (const Span& span : row) {
      if (is_compute(span.action.op)) {
        first = std::min(first, span.start);
      }
    }
  }
  return std::isfinite(first.value) ? first : Seconds{};
}

Seconds drawn_length(const Timeline& timeline) {
  const Seconds origin = first_start(timeline);
  Seconds length = timeline.length;
  for (const auto& row : timeline.rows) {
    for (const Span& span : row) {
      if (is_compute(span.action.op) || is_collective(span.action.op)) {
        length = std::max(length, span.end - origin);
      }
    }
  }
  return length;
}

std::vector<StageId> stages_of(const std::vector<Span>& row) {
  std::vector<StageId> stages;
  for (const Span& span : row) {
    if (is_compute(span.action.op)) {
      stages.push_back(span.action.stage);
    }
  }
  std::ranges::sort(stages);
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

std::string row_name(const Timeline& timeline, std::size_t rank) {
  const std::vector<StageId> stages = stages_of(timeline.rows[rank]);
  return stages.size() == 1 ? "stage " + std::to_string(stages[0].value)
                            : "rank " + std::to_string(rank);
}

std::vector<Op> ops_of(const std::vector<std::vector<Span>>& rows) {
  std::set<Op> seen;
  for (const auto& row : rows) {
    for (const Span& span : row) {
      seen.insert(span.action.op);
    }
  }
  std::vector<Op> ops;
  for (const OpTraits& kind : op_table()) {
    if (seen.contains(kind.op)) {
      ops.push_back(kind.op);
    }
  }
  return ops;
}

std::string bubble_text(const Timeline& timeline) {
  return "bubble " + decimal(100 * timeline.bubble(), 1) + " %";
}

std::string dark_style() {
  return "<style>@media (prefers-color-scheme: dark) {"
         " .ground { fill: #14191f } .idle { fill: #2a323b }"
         " .ink { fill: #e4e9ee } .faint { fill: #9aa7b3 }"
         " .line { stroke: #3c4650 } .mark { stroke: #9aa7b3 } }</style>\n";
}

std::string hover_text(const Span& span, Seconds origin) {
  return to_text(span.action) + " of stage " +
         std::to_string(span.action.stage.value) + ": starts at " +
         to_text(span.start - origin) + ", takes " +
         to_text(span.end - span.start);
}

std::string compute_blocks(const std::vector<Span>& row,
                           const TimeScale& scale,
                           RowPlace place) {
  const std::vector<StageId> stages = stages_of(row);
  std::string out;
  for (const Span& span : row) {
    if (is_compute(span.action.op)) {
      const auto stage = std::ranges::lower_bound(stages, span.action.stage);
      const Colour colour = shade(paint_of(span.action.op),
                                  static_cast<int>(stage - stages.begin()),
                                  static_cast<int>(stages.size()));
      out += compute_block(span, scale, place, colour);
    }
  }
  return out;
}

std::string network_marks(const std::vector<Span>& row,
                          const TimeScale& scale,
                          RowPlace place,
                          double bottom,
                          double right) {
  const double top = place.y + place.height + 1.5;
  const double height = std::min(3.0, bottom - top - 0.5);
  std::string out;
  for (const Span& span : row) {
    const double begin = std::max(scale.left, scale.x(span.start));
    const double end = std::min(right, scale.x(span.end));
    if (is_compute(span.action.op) || end < begin) {
      continue;
    }
    const svg::Box box{begin, top, std::max(end - begin, 1.2), height};
    const std::string css =
        is_collective(span.action.op) ? "collective" : "message";
    out += "<g class=\"" + css + "\"><title>" +
           svg::escaped(hover_text(span, scale.origin)) + "</title>" +
           svg::rect(box, to_text(paint_of(span.action.op).first)) + "</g>\n";
  }
  return out;
}

std::vector<LegendItem> block_items(const std::vector<Op>& ops) {
  return samples(ops, is_compute, "");
}

std::vector<LegendItem> mark_items(const std::vector<Op>& ops) {
  std::vector<LegendItem> items = samples(ops, is_collective, "thin: ");
  const auto add_message = [&](bool (*matches)(Op), const std::string& words) {
    const auto op = std::ranges::find_if(ops, matches);
    if (op != ops.end()) {
      items.push_back({to_text(paint_of(*op).first), "thin: " + words});
    }
  };
  add_message(is_receive, "waits for a message");
  add_message(is_send, "sends one");
  return items;
}

std::string legend(const std::vector<LegendItem>& items, double x, double y) {
  std::string out;
  for (const LegendItem& item : items) {
    out += svg::rect({x, y, 14, 14}, item.colour, 2.5, item.css);
    out += svg::text(
        x + 20, y + 11, item.words, {.size = 12, .fill = kText, .css = "ink"});
    x += item_width(item);
  }
  return out + "\n";
}

double legend_width(const std::vector<LegendItem>& items) {
  double width = 0;
  for (const LegendItem& item : items) {
    width += item_width(item);
  }
  return width;
}

Ticks ticks(Seconds length) {
  const TimeUnit unit = unit_for(length.value);
  Ticks marks{.unit = unit.name};
  if (!(length.value > 0)) {
    return marks;
  }
  const double units = length.value / unit.seconds;
  const double step = tick_step(units);
  const int digits =
      step < 1 ? static_cast<int>(-std::floor(std::log10(step))) : 0;
  for (int i = 0; i * step <= units * (1 + 1e-9); ++i) {
    marks.times.push_back(Seconds{i * step * unit.seconds});
    marks.labels.push_back(decimal(i * step, digits));
  }
  return marks;
}

std::string time_axis(const Ticks& marks, const TimeScale& scale, double y) {
  if (marks.times.empty()) {
    return "";
  }
  svg::TextStyle faint{
      .size = 11, .fill = kFaintText, .anchor = "end", .css = "faint"};
  std::string out = svg::text(
      scale.left - 12, y + 22, "time in " + std::string(marks.unit), faint);
  faint.anchor = "middle";
  for (std::size_t i = 0; i < marks.times.size(); ++i) {
    const double x = scale.x(scale.origin + marks.times[i]);
    out += svg::tick(x, y, 8, kLine, "line");
    out += svg::text(x, y + 22, marks.labels[i], faint);
  }
  return out + "\n";
}

}  // namespace cleave
