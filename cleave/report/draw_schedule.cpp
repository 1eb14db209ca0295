#include "cleave/report/draw_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "cleave/report/svg.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

// "stage 2"; a rank that has several stages, or none, goes by its own number.
std::string row_name(const Timeline& timeline, std::size_t rank) {
  const std::vector<Span>& row = timeline.rows[rank];
  const bool one_stage =
      !row.empty() && std::ranges::all_of(row, [&](const Span& span) {
        return span.action.stage == row.front().action.stage;
      });
  return one_stage ? "stage " + std::to_string(row.front().action.stage.value)
                   : "rank " + std::to_string(rank);
}

// When the first action starts: where the drawing begins.
Seconds first_start(const Timeline& timeline) {
  Seconds first{std::numeric_limits<double>::infinity()};
  for (const auto& row : timeline.rows) {
    for (const Span& span : row) {
      first = std::min(first, span.start);
    }
  }
  return std::isfinite(first.value) ? first : Seconds{};
}

bool has_weights(const Timeline& timeline) {
  return std::ranges::any_of(timeline.rows, [](const auto& row) {
    return std::ranges::any_of(
        row, [](const Span& span) { return span.action.op == Op::weight; });
  });
}

std::string bubble_text(const Timeline& timeline) {
  return "bubble " + decimal(100 * timeline.bubble(), 1) + " %";
}

// ---- text -------------------------------------------------------------------

// Columns per second. Where there is room, the shortest action gets a whole
// number of columns: equal stages then look equal.
double columns_per_second(const Timeline& timeline, int available) {
  const double length = timeline.length.value;
  double shortest = length;
  for (const auto& row : timeline.rows) {
    for (const Span& span : row) {
      const double time = (span.end - span.start).value;
      if (is_compute(span.action.op) && time > 0) {
        shortest = std::min(shortest, time);
      }
    }
  }
  if (length <= 0) {
    return 0;
  }
  // A sum of many times may miss a whole number by a hair.
  const double whole = std::floor(available * shortest / length + 1e-9);
  return whole >= 1 ? whole / shortest : available / length;
}

// An action and the columns it covers, as fractions.
struct Block {
  Action action;
  double begin;
  double end;
};

std::vector<Block> blocks(const std::vector<Span>& row,
                          Seconds origin,
                          double scale) {
  std::vector<Block> found;
  for (const Span& span : row) {
    if (is_compute(span.action.op)) {
      found.push_back({span.action,
                       (span.start - origin).value * scale,
                       (span.end - origin).value * scale});
    }
  }
  return found;
}

// Whether most actions take less than a column.
bool is_dense(const std::vector<Block>& row) {
  double covered = 0;
  for (const Block& block : row) {
    covered += block.end - block.begin;
  }
  return covered < static_cast<double>(row.size());
}

// How compute looks in text: its letter, and a line up to its width.
struct Stroke {
  std::string_view letter;
  std::string_view line;
};

Stroke stroke_of(Op op) {
  switch (op) {
    case Op::forward:
      return {"F", "─"};
    case Op::backward:
      return {"B", "═"};
    default:
      return {"W", "┄"};
  }
}

// The label, then a line up to the width; only the letter where the label does
// not fit.
std::string labelled(const Action& action, bool with_stage, int width) {
  const Stroke stroke = stroke_of(action.op);
  std::string label = to_text(action, with_stage);
  if (columns(label) > width) {
    label = stroke.letter;
  }
  for (int column = columns(label); column < width; ++column) {
    label += stroke.line;
  }
  return label;
}

std::string sparse_row(const std::vector<Block>& row,
                       int width,
                       bool with_stage) {
  std::string text;
  int drawn = 0;
  const auto idle_until = [&](int end) {
    for (; drawn < end; ++drawn) {
      text += "·";
    }
  };
  for (const auto& [action, begin, end] : row) {
    idle_until(static_cast<int>(std::lround(begin)));
    const int left = static_cast<int>(std::lround(end)) - drawn;
    if (left > 0) {
      text += labelled(action, with_stage, left);
      drawn += left;
    }
  }
  idle_until(width);
  return text;
}

// Tells for every column what fills it: single actions would not show.
std::string dense_row(const std::vector<Block>& row, int width) {
  std::map<Op, std::vector<double>> filled;
  for (const auto& [action, begin, end] : row) {
    auto& columns_of_op =
        filled.try_emplace(action.op, std::vector<double>(width, 0))
            .first->second;
    for (int i = static_cast<int>(begin); i < width && i < end; ++i) {
      columns_of_op[i] += std::min(end, i + 1.0) - std::max<double>(begin, i);
    }
  }
  constexpr double kTrace = 0.1;  // less of a column than this does not show
  std::string text;
  for (int i = 0; i < width; ++i) {
    double busy = 0;
    int shown = 0;
    std::string_view letter;
    for (const auto& [op, columns_of_op] : filled) {
      busy += columns_of_op[i];
      shown += columns_of_op[i] >= kTrace ? 1 : 0;
      letter = columns_of_op[i] >= kTrace ? stroke_of(op).letter : letter;
    }
    text += busy < 0.5 ? "·" : shown == 1 ? letter : "▒";
  }
  return text;
}

std::string text_legend(bool weights, bool mixed) {
  return std::string("F forward, B backward, ") +
         (weights ? "W weights, " : "") +
         (!mixed    ? ""
          : weights ? "▒ several, "
                    : "▒ both, ") +
         "· idle; ";
}

// ---- SVG --------------------------------------------------------------------

constexpr double kWidth = 960;
constexpr double kLeft = 84;   // of the time line; row names stand before it
constexpr double kRight = 24;  // behind it
constexpr double kTop = 56;    // of the first row

// Blue, amber and teal differ for every kind of colour blindness, and dark,
// light and medium differ without any colour.
struct Ink {
  std::string_view fill;
  std::string_view text;
};
constexpr Ink kForward{"#3d74a6", "#ffffff"};
constexpr Ink kBackward{"#f0c274", "#3a2a08"};
constexpr Ink kWeight{"#7dbcae", "#0e3029"};
constexpr std::string_view kIdle = "#e9edf1";
constexpr std::string_view kText = "#24303c";
constexpr std::string_view kFaintText = "#5c6975";
constexpr std::string_view kLine = "#d3d9df";

const Ink& ink_of(Op op) {
  switch (op) {
    case Op::forward:
      return kForward;
    case Op::backward:
      return kBackward;
    default:
      return kWeight;
  }
}

// Where things stand on the image.
struct Layout {
  explicit Layout(const Timeline& timeline)
      : origin(first_start(timeline)),
        scale(timeline.length.value > 0
                  ? (kWidth - kLeft - kRight) / timeline.length.value
                  : 0),
        pitch(std::clamp(600 / rows(timeline), 20.0, 38.0)),
        bottom(kTop + pitch * rows(timeline)) {}

  static double rows(const Timeline& timeline) {
    return std::max(1.0, static_cast<double>(timeline.rows.size()));
  }

  double x(Seconds time) const { return kLeft + (time - origin).value * scale; }
  double y(std::size_t rank) const {
    return kTop + pitch * static_cast<double>(rank);
  }
  double row_height() const { return pitch * 0.82; }

  Seconds origin;
  double scale;   // per second
  double pitch;   // from row to row
  double bottom;  // of the rows
};

// The stages of a rank, ascending.
std::vector<StageId> stages_of(const std::vector<Span>& row) {
  std::set<StageId> found;
  for (const Span& span : row) {
    found.insert(span.action.stage);
  }
  return {found.begin(), found.end()};
}

// Tells the stages of a rank apart: a line at the foot of the block, at its
// left for the first stage, at its right for the last.
std::string svg_stage_mark(const svg::Box& box,
                           const std::vector<StageId>& stages,
                           StageId stage) {
  if (stages.size() < 2) {
    return "";
  }
  const auto index = std::ranges::find(stages, stage) - stages.begin();
  const double part = box.width / static_cast<double>(stages.size());
  const double thick = box.height * 0.14;
  return svg::rect({box.x + part * static_cast<double>(index),
                    box.y + box.height - thick,
                    part,
                    thick},
                   kText);
}

std::string svg_action(const Span& span,
                       const std::vector<StageId>& stages,
                       const Layout& layout,
                       double y) {
  const Ink& ink = ink_of(span.action.op);
  const double full = layout.x(span.end) - layout.x(span.start);
  const double width = full > 4 ? full - 1 : full;  // a gap where there is room
  const svg::Box box{layout.x(span.start), y, width, layout.row_height()};
  const std::string number = std::to_string(span.action.microbatch.value);
  const double size = std::min(12.0, layout.row_height() * 0.6);
  std::string out = "<g class=\"action\"><title>";
  out += svg::escaped(to_text(span.action) + " of stage " +
                      std::to_string(span.action.stage.value) + ": starts at " +
                      to_text(span.start - layout.origin) + ", takes " +
                      to_text(span.end - span.start));
  out += "</title>" + svg::rect(box, ink.fill, width > 8 ? 2.5 : 0);
  out += svg_stage_mark(box, stages, span.action.stage);
  // Digits are at most 0.62 of the font's size wide.
  if (width >= static_cast<double>(number.size()) * size * 0.62 + 3) {
    out += svg::text(box.x + width / 2,
                     box.y + box.height / 2 + size * 0.36,
                     number,
                     {.size = size, .fill = ink.text, .anchor = "middle"});
  }
  return out + "</g>\n";
}

std::string svg_row(const Timeline& timeline,
                    std::size_t rank,
                    const Layout& layout) {
  const double y = layout.y(rank);
  const double height = layout.row_height();
  const std::string name = row_name(timeline, rank);
  std::string out = svg::text(kLeft - 12,
                              y + height / 2 + 4,
                              name,
                              {.size = 12, .fill = kText, .anchor = "end"});
  out += svg::rect({kLeft, y, kWidth - kLeft - kRight, height}, kIdle) + "\n";
  const std::vector<StageId> stages = stages_of(timeline.rows[rank]);
  for (const Span& span : timeline.rows[rank]) {
    if (is_compute(span.action.op)) {
      out += svg_action(span, stages, layout, y);
    }
  }
  return out;
}

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

std::string svg_axis(const Timeline& timeline, const Layout& layout) {
  if (timeline.length.value <= 0) {
    return "";
  }
  const TimeUnit unit = unit_for(timeline.length.value);
  const double length = timeline.length.value / unit.seconds;
  const double step = tick_step(length);
  const int digits =
      step < 1 ? static_cast<int>(-std::floor(std::log10(step))) : 0;
  const double y = layout.bottom;
  const svg::TextStyle faint{
      .size = 11, .fill = kFaintText, .anchor = "middle"};
  std::string out =
      svg::text(kLeft - 12,
                y + 22,
                "time in " + std::string(unit.name),
                {.size = 11, .fill = kFaintText, .anchor = "end"});
  for (int i = 0; i * step <= length * (1 + 1e-9); ++i) {
    const double x = layout.x(layout.origin + Seconds{i * step * unit.seconds});
    out += svg::tick(x, y, 8, kLine);
    out += svg::text(x, y + 22, decimal(i * step, digits), faint);
  }
  return out + "\n";
}

// Right of the title.
std::string svg_legend(bool weights) {
  std::string out;
  double x = kWidth - kRight - (weights ? 312 : 226);
  const auto add =
      [&](std::string_view fill, std::string_view words, double by) {
        out += svg::rect({x, 20, 14, 14}, fill, 2.5);
        out += svg::text(x + 20, 31, words, {.size = 12, .fill = kText});
        x += by;
      };
  add(kForward.fill, "forward", 82);
  add(kBackward.fill, "backward", 94);
  if (weights) {
    add(kWeight.fill, "weights", 86);
  }
  add(kIdle, "idle", 0);
  return out + "\n";
}

}  // namespace

std::string draw_text(const Timeline& timeline, int width) {
  int names = 0;
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank) {
    names = std::max(names, columns(row_name(timeline, rank)) + 2);
  }
  const auto indented = [&](const std::string& name) {
    return name + std::string(names - columns(name), ' ');
  };
  const double scale = columns_per_second(timeline, std::max(1, width - names));
  const int drawn =
      static_cast<int>(std::lround(scale * timeline.length.value));
  const Seconds origin = first_start(timeline);
  std::string text;
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank) {
    const std::string name = row_name(timeline, rank);
    const auto row = blocks(timeline.rows[rank], origin, scale);
    text += indented(name);
    text += is_dense(row) ? dense_row(row, drawn)
                          : sparse_row(row, drawn, name.starts_with("rank"));
    text += "\n";
  }
  const std::string end = to_text(timeline.length);
  const int gap = std::max(1, drawn - 1 - columns(end));
  text += indented("") + "0" + std::string(gap, ' ') + end + "\n";
  const bool mixed = text.find("▒") != std::string::npos;
  return text + indented("") + text_legend(has_weights(timeline), mixed) +
         bubble_text(timeline) + "\n";
}

std::string draw_svg(const Timeline& timeline, const std::string& title) {
  const Layout layout(timeline);
  const double height = std::round(layout.bottom + 62);
  const std::string size = decimal(kWidth, 0) + " " + decimal(height, 0);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\"" +
                    svg::attribute("width", decimal(kWidth, 0)) +
                    svg::attribute("height", decimal(height, 0)) +
                    svg::attribute("viewBox", "0 0 " + size) +
                    svg::attribute("aria-label", title) +
                    svg::attribute("font-family", "system-ui, sans-serif") +
                    ">\n";
  out += svg::rect({0, 0, kWidth, height}, "#ffffff") + "\n";
  out += svg::text(20, 33, title, {.size = 17, .fill = kText}) + "\n";
  out += svg_legend(has_weights(timeline));
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank) {
    out += svg_row(timeline, rank, layout);
  }
  out += svg_axis(timeline, layout);
  out += svg::text(kLeft,
                   layout.bottom + 46,
                   bubble_text(timeline) + ": the share of the " +
                       to_text(timeline.length) +
                       " that the devices spend waiting",
                   {.size = 12, .fill = kFaintText}) +
         "\n";
  return out + "</svg>\n";
}

}  // namespace cleave
