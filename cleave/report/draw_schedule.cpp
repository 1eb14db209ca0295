#include "cleave/report/draw_schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "cleave/report/action_kind.h"
#include "cleave/report/drawing.h"
#include "cleave/report/svg.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

// ---- text -------------------------------------------------------------------

// Columns per second. Where there is room, the shortest action of a microbatch
// gets a whole number of columns: equal stages then look equal.
double columns_per_second(const Timeline& timeline, int available) {
  const double length = timeline.length.value;
  double shortest = length;
  for (const auto& row : timeline.rows) {
    for (const Span& span : row) {
      const double time = (span.end - span.start).value;
      const Op op = span.action.op;
      if (is_compute(op) && op != Op::update && time > 0) {
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

// What follows the label of a kind up to the end of the action.
std::string_view line_of(const ActionKind& kind) {
  return kind.letters == "F"   ? "─"
         : kind.letters == "B" ? "═"
         : kind.letters == "W" ? "┄"
                               : "━";
}

// The label, then a line up to the width; only the letter where the label does
// not fit.
std::string labelled(const Action& action, bool with_stage, int width) {
  const ActionKind& kind = kind_of(action);
  std::string label = to_text(action, with_stage);
  if (columns(label) > width) {
    label = kind.letters;
  }
  for (int column = columns(label); column < width; ++column) {
    label += line_of(kind);
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
    auto& shares = filled[kind_of(action).letters];
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

std::string text_legend(const Timeline& timeline, bool mixed) {
  const std::vector<ActionKind> kinds = compute_kinds(timeline);
  std::string text;
  for (const ActionKind& kind : kinds) {
    text += std::string(kind.letters) + " " + std::string(kind.words) + ", ";
  }
  text += !mixed ? "" : kinds.size() > 2 ? "▒ several, " : "▒ both, ";
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
                  timeline.length.value > 0
                      ? (kWidth - kLeft - kRight) / timeline.length.value
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
  return out + compute_blocks(timeline.rows[rank], layout.scale, {y, height});
}

// Right of the title.
std::string svg_legend(const Timeline& timeline) {
  std::vector<LegendItem> items;
  for (const ActionKind& kind : compute_kinds(timeline)) {
    items.push_back({to_text(kind.first), std::string(kind.words)});
  }
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
  return text + indented("") + text_legend(timeline, mixed);
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
  out += svg_legend(timeline);
  for (std::size_t rank = 0; rank < timeline.rows.size(); ++rank) {
    out += svg_row(timeline, rank, layout);
  }
  out += time_axis(ticks(timeline.length), layout.scale, layout.bottom);
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
