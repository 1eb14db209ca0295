#include "cleave/report/draw_schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "cleave/report/drawing.h"
#include "cleave/report/svg.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

// ---- text -------------------------------------------------------------------

// Columns per second. Where there is room, the shortest action of a microbatch
// gets a whole number of columns: equal stages then look equal.
double columns_per_second(const Timeline& timeline, int available) {
  const double length = drawn_length(timeline).value;
  double shortest = length;
  for (const auto& row : timeline.rows) {
    for (const Span& span : row) {
      const double time = (span.end - span.start).value;
      if (is_pass(span.action.op) && time > 0) {
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

// Of the ops that `is_shown` takes.
std::vector<Block> blocks(const std::vector<Span>& row,
                          bool (*is_shown)(Op),
                          Seconds origin,
                          double scale) {
  std::vector<Block> found;
  for (const Span& span : row) {
    if (is_shown(span.action.op)) {
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

// What follows the label up to the end of the action.
std::string_view line_of(Op op) {
  switch (op) {
    case Op::forward:
      return "─";
    case Op::backward:
      return "═";
    case Op::weight:
      return "┄";
    default:
      return is_collective(op) ? "╌" : "━";
  }
}

// Whether labels on the rank's lines need their stage.
bool names_stages(const Timeline& timeline, std::size_t rank) {
  return stages_of(timeline.rows[rank]).size() != 1;
}

// The label, then a line up to the width; only the letters where the label does
// not fit.
std::string labelled(const Action& action, bool with_stage, int width) {
  std::string label = to_text(action, with_stage);
  if (columns(label) > width) {
    label = traits(action.op).letters;
  }
  for (int column = columns(label); column < width; ++column) {
    label += line_of(action.op);
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
  std::map<std::string_view, std::vector<double>> filled;  // of every kind
  for (const auto& [action, begin, end] : row) {
    auto& shares = filled[traits(action.op).letters];
    shares.resize(width, 0);
    for (int i = static_cast<int>(begin); i < width && i < end; ++i) {
      shares[i] += std::min(end, i + 1.0) - std::max<double>(begin, i);
    }
  }
  constexpr double kTrace = 0.1;  // less of a column than this does not show
  std::string text;
  for (int i = 0; i < width; ++i) {
    double all = 0;
    std::string letters;
    for (const auto& [kind, shares] : filled) {
      all += shares[i];
      letters += shares[i] < kTrace ? "" : kind;
    }
    text += all < 0.5 ? "·" : letters.size() == 1 ? letters : "▒";
  }
  return text;
}

// Each at least a column wide, as far as the one before it leaves room.
std::string marks_row(const std::vector<Block>& row,
                      int width,
                      bool with_stage) {
  std::string text;
  int drawn = 0;
  for (const auto& [action, begin, end] : row) {
    const int first = static_cast<int>(std::lround(begin));
    const int last = static_cast<int>(std::lround(end));
    const int start = std::max(drawn, std::min(first, width - 1));
    const int least = first < drawn ? start : start + 1;
    const int stop = std::min(width, std::max(last, least));
    if (stop > start) {
      text += std::string(start - drawn, ' ') +
              labelled(action, with_stage, stop - start);
      drawn = stop;
    }
  }
  return text;
}

// How a timeline stands on a terminal.
struct TextLayout {
  Seconds origin;
  double scale = 0;  // columns per second
  int width = 0;     // of the time line
};

std::string compute_line(const Timeline& timeline,
                         std::size_t rank,
                         const TextLayout& layout) {
  const auto row =
      blocks(timeline.rows[rank], is_compute, layout.origin, layout.scale);
  return is_dense(row)
             ? dense_row(row, layout.width)
             : sparse_row(row, layout.width, names_stages(timeline, rank));
}

// Empty where the rank has none.
std::string collectives_line(const Timeline& timeline,
                             std::size_t rank,
                             const TextLayout& layout) {
  const auto row =
      blocks(timeline.rows[rank], is_collective, layout.origin, layout.scale);
  return marks_row(row, layout.width, names_stages(timeline, rank));
}

std::string text_legend(const Timeline& timeline, bool mixed) {
  int kinds = 0;
  std::string text;
  for (const Op op : ops_of(timeline.rows)) {
    if (is_compute(op) || is_collective(op)) {
      kinds += is_compute(op) ? 1 : 0;
      text += std::string(traits(op).letters) + " " +
              std::string(traits(op).words) + ", ";
    }
  }
  text += !mixed ? "" : kinds > 2 ? "▒ several, " : "▒ both, ";
  return text + "· idle; " + bubble_text(timeline) + "\n";
}

// ---- SVG --------------------------------------------------------------------

constexpr double kWidth = 960;
constexpr double kLeft = 84;   // of the time line; row names stand before it
constexpr double kRight = 24;  // behind it
constexpr double kTop = 56;    // of the first row

// Where things stand on the image.
struct Layout {
  explicit Layout(const Timeline& timeline)
      : scale{.origin = first_start(timeline),
              .left = kLeft,
              .per_second =
                  drawn_length(timeline).value > 0
                      ? (kWidth - kLeft - kRight) / drawn_length(timeline).value
                      : 0},
        pitch(std::clamp(600 / rows(timeline), 20.0, 38.0)),
        bottom(kTop + pitch * rows(timeline)) {}

  static double rows(const Timeline& timeline) {
    return std::max(1.0, static_cast<double>(timeline.rows.size()));
  }

  double y(std::size_t rank) const {
    return kTop + pitch * static_cast<double>(rank);
  }
  double row_height() const { return pitch * 0.82; }

  TimeScale scale;
  double pitch;   // from row to row
  double bottom;  // of the rows
};

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
  out += compute_blocks(timeline.rows[rank], layout.scale, {y, height});
  return out + network_marks(timeline.rows[rank],
                             layout.scale,
                             {y, height},
                             y + layout.pitch,
                             kWidth - kRight);
}

// Right of the title.
std::string svg_legend(const std::vector<Op>& ops) {
  std::vector<LegendItem> items = block_items(ops);
  items.push_back({std::string(kIdle), "idle"});
  return legend(items, kWidth - kRight - legend_width(items), 20);
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
  const Seconds length = drawn_length(timeline);
  TextLayout layout{
      .origin = first_start(timeline),
      .scale = columns_per_second(timeline, std::max(1, width - names))};
  layout.width = static_cast<int>(std::lround(layout.scale * length.value));
  std::string text;
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank) {
    text += indented(row_name(timeline, rank)) +
            compute_line(timeline, rank, layout) + "\n";
    const std::string marks = collectives_line(timeline, rank, layout);
    text += marks.empty() ? "" : indented("") + marks + "\n";
  }
  const std::string end = to_text(length);
  const int gap = std::max(1, layout.width - 1 - columns(end));
  text += indented("") + "0" + std::string(gap, ' ') + end + "\n";
  const bool mixed = text.find("▒") != std::string::npos;
  return text + indented("") + text_legend(timeline, mixed);
}

std::string draw_svg(const Timeline& timeline, const std::string& title) {
  const Layout layout(timeline);
  const std::vector<Op> ops = ops_of(timeline.rows);
  const std::vector<LegendItem> marks = mark_items(ops);
  const double height = std::round(layout.bottom + (marks.empty() ? 62 : 86));
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
  out += svg_legend(ops);
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank) {
    out += svg_row(timeline, rank, layout);
  }
  out += time_axis(ticks(drawn_length(timeline)), layout.scale, layout.bottom);
  out += svg::text(kLeft,
                   layout.bottom + 46,
                   bubble_text(timeline) + ": the share of the " +
                       to_text(timeline.length) +
                       " that the devices spend waiting",
                   {.size = 12, .fill = kFaintText}) +
         "\n";
  out += legend(marks, kLeft, layout.bottom + 59);
  return out + "</svg>\n";
}

}  // namespace cleave
