#include "cleave/report/timeline_svg.h"

#include <algorithm>
#include <string_view>

#include "cleave/report/drawing.h"
#include "cleave/report/svg.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

constexpr double kPictureWidth = 1200;
constexpr double kNames = 132;  // the column of names, left of the time line
constexpr double kShares = 62;  // the column of shares, right of it
constexpr double kPlotRight = kPictureWidth - kShares;
constexpr double kHeading = 28;  // above the rows of a timeline
constexpr int kNameColumns = 17;

// As long as the timeline says, and at least as long as what is drawn.
Seconds drawn_length(const Timeline& timeline) {
  const Seconds origin = first_start(timeline);
  Seconds length = timeline.length;
  for (const auto& row : timeline.rows) {
    for (const Span& span : row) {
      if (is_compute(span.action.op)) {
        length = std::max(length, span.end - origin);
      }
    }
  }
  return length;
}

// A timeline and where it stands on the picture.
struct Part {
  std::string name;
  const Timeline* timeline = nullptr;
  TimeScale scale;
  double top = 0;    // of the first row
  double pitch = 0;  // from row to row

  RowPlace place(std::size_t rank) const {
    return {top + pitch * static_cast<double>(rank), pitch * 0.78};
  }
  double bottom() const { return place(timeline->rows.size()).y; }
};

std::vector<Part> laid_out(const StepComparison& step, double top) {
  std::vector<Part> parts;
  if (step.predicted) {
    parts.push_back({.name = "predicted", .timeline = &*step.predicted});
  }
  parts.push_back({.name = "measured", .timeline = &step.measured});
  Seconds length;
  std::size_t rows = 1;
  for (const Part& part : parts) {
    length = std::max(length, drawn_length(*part.timeline));
    rows = std::max(rows, part.timeline->rows.size());
  }
  for (Part& part : parts) {
    part.scale = {.origin = first_start(*part.timeline),
                  .left = kNames,
                  .per_second = length.value > 0
                                    ? (kPlotRight - kNames) / length.value
                                    : 0};
    part.pitch = std::clamp(480 / static_cast<double>(rows), 20.0, 38.0);
    part.top = top + kHeading;
    top = part.bottom() + 10;
  }
  return parts;
}

std::string shortened(const std::string& name) {
  return columns(name) <= kNameColumns
             ? name
             : std::string(first_columns(name, kNameColumns - 1)) + "…";
}

// Name, length and bubble of a timeline, above its rows.
std::string part_heading(const Part& part) {
  const double y = part.top - 9;
  return svg::text(kNames - 12,
                   y,
                   part.name,
                   {.size = 14, .fill = kText, .anchor = "end", .css = "ink"}) +
         svg::text(kNames,
                   y,
                   to_text(part.timeline->length) + ", " +
                       bubble_text(*part.timeline),
                   {.size = 13, .fill = kText, .css = "ink"}) +
         svg::text(kPictureWidth - 14,
                   y,
                   "busy",
                   {.size = 11,
                    .fill = kFaintText,
                    .anchor = "end",
                    .css = "faint"}) +
         "\n";
}

// Everything of a row but its blocks: names on the left, idle time, the share
// on the right.
std::string row_frame(const StepComparison& step,
                      const Part& part,
                      std::size_t rank) {
  const auto [y, height] = part.place(rank);
  const double middle = y + height / 2;
  const std::vector<Span>& row = part.timeline->rows[rank];
  const std::size_t count = stages_of(row).size();
  const std::string stages =
      (count > 1 ? "stages " : "stage ") + stages_text(row);
  const bool two_lines = height >= 26 && count > 0;
  std::string out =
      svg::text(kNames - 12,
                two_lines ? middle - 2 : middle + 4,
                shortened(device_name(step, rank)),
                {.size = 12, .fill = kText, .anchor = "end", .css = "ink"});
  if (two_lines) {
    out += svg::text(
        kNames - 12,
        middle + 11,
        shortened(stages),
        {.size = 10.5, .fill = kFaintText, .anchor = "end", .css = "faint"});
  }
  const double width =
      drawn_length(*part.timeline).value * part.scale.per_second;
  out += svg::rect({kNames, y, width, height}, kIdle, 0, "idle");
  out += svg::text(kPictureWidth - 14,
                   middle + 4,
                   percent(busy_share(*part.timeline, rank)),
                   {.size = 12, .fill = kText, .anchor = "end", .css = "ink"});
  return out + "\n";
}

bool is_receive(Op op) {
  return op == Op::receive_forward || op == Op::receive_backward;
}

// A rank often waits for a step's first message since before the step began;
// only what lies on the picture is drawn.
std::string message_marks(const Part& part, std::size_t rank) {
  const auto [y, height] = part.place(rank);
  std::string out;
  for (const Span& span : part.timeline->rows[rank]) {
    const double begin = std::max(kNames, part.scale.x(span.start));
    const double end = std::min(kPlotRight, part.scale.x(span.end));
    if (is_compute(span.action.op) || end < begin) {
      continue;
    }
    const svg::Box box{begin,
                       y + height + 1.5,
                       std::max(end - begin, 1.2),
                       std::min(3.0, part.pitch - height - 2)};
    out += "<g class=\"message\"><title>" +
           svg::escaped(hover_text(span, part.scale.origin)) + "</title>" +
           svg::rect(box, to_text(kind_of(span.action).first)) + "</g>\n";
  }
  return out;
}

// Through all rows, behind the blocks.
std::string grid(const Ticks& marks, const std::vector<Part>& parts) {
  std::string out;
  for (const Part& part : parts) {
    for (const Seconds time : marks.times) {
      out += svg::tick(part.scale.x(part.scale.origin + time),
                       part.top - 2,
                       part.bottom() - part.top + 2,
                       kLine,
                       "line");
    }
  }
  return out + "\n";
}

std::string dashed(double x, double y, double size) {
  return "<path class=\"mark\" stroke-dasharray=\"4 3\"" +
         svg::attribute("stroke", kFaintText) +
         svg::attribute("d",
                        "M" + decimal(x, 2) + " " + decimal(y, 2) + "v" +
                            decimal(size, 2)) +
         "/>\n";
}

// Where the prediction ends, behind the blocks and down through the
// measurement.
std::string predicted_end(const std::vector<Part>& parts) {
  const Part& part = parts.front();
  const double x = part.scale.x(part.scale.origin + part.timeline->length);
  return dashed(x, part.top - 4, parts.back().bottom() - part.top + 6);
}

// Every span of every part.
std::vector<Span> all_spans(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  for (const Part& part : parts) {
    for (const auto& row : part.timeline->rows) {
      spans.insert(spans.end(), row.begin(), row.end());
    }
  }
  return spans;
}

std::vector<LegendItem> legend_items(const std::vector<Part>& parts) {
  const std::vector<Span> spans = all_spans(parts);
  std::vector<LegendItem> items;
  for (const ActionKind& kind : compute_kinds(Timeline{.rows = {spans}})) {
    items.push_back({to_text(kind.first), std::string(kind.words)});
  }
  items.push_back({std::string(kIdle), "idle", "idle"});
  const auto has = [&](auto matches) {
    return std::ranges::any_of(
        spans, [&](const Span& span) { return matches(span.action.op); });
  };
  if (has(is_receive)) {
    items.push_back(
        {to_text(kind_of("RF").first), "thin: waits for a message"});
  }
  if (has([](Op op) { return !is_compute(op) && !is_receive(op); })) {
    items.push_back({to_text(kind_of("SF").first), "thin: sends one"});
  }
  return items;
}

bool has_shades(const std::vector<Part>& parts) {
  return std::ranges::any_of(parts, [](const Part& part) {
    return std::ranges::any_of(part.timeline->rows, [](const auto& row) {
      return stages_of(row).size() > 1;
    });
  });
}

std::string picture_legend(const std::vector<Part>& parts, double y) {
  const std::vector<LegendItem> items = legend_items(parts);
  const svg::TextStyle style{.size = 12, .fill = kText, .css = "ink"};
  std::string out = legend(items, kNames, y);
  if (parts.size() > 1) {
    const double x = kNames + legend_width(items);
    out += dashed(x + 7, y - 1, 16);
    out += svg::text(x + 16, y + 11, "end of the prediction", style);
  }
  if (has_shades(parts)) {
    out += svg::text(
        kNames, y + 33, "darker: a later stage of the same device", style);
  }
  return out + "\n";
}

// The rows of all parts; blocks hide the grid, and that the frames.
std::string picture_rows(const StepComparison& step,
                         const std::vector<Part>& parts,
                         const Ticks& marks) {
  std::string out;
  std::string blocks;
  for (const Part& part : parts) {
    out += "<g class=\"" + part.name + "\">\n" + part_heading(part);
    blocks += "<g class=\"" + part.name + "\">\n";
    for (std::size_t rank = 0; rank < part.timeline->rows.size(); ++rank) {
      out += row_frame(step, part, rank);
      blocks += compute_blocks(
          part.timeline->rows[rank], part.scale, part.place(rank));
      blocks += message_marks(part, rank);
    }
    out += "</g>\n";
    blocks += "</g>\n";
  }
  out += grid(marks, parts);
  out += parts.size() > 1 ? predicted_end(parts) : "";
  return out + blocks;
}

}  // namespace

std::string device_name(const StepComparison& step, std::size_t rank) {
  return rank < step.devices.size() ? step.devices[rank]
                                    : "rank " + std::to_string(rank);
}

std::string stages_text(const std::vector<Span>& row) {
  std::string text;
  for (const StageId stage : stages_of(row)) {
    text += (text.empty() ? "" : ", ") + std::to_string(stage.value);
  }
  return text;
}

double busy_share(const Timeline& timeline, std::size_t rank) {
  return rank < timeline.busy.size() && timeline.length.value > 0
             ? timeline.busy[rank] / timeline.length
             : 0;
}

std::string timeline_svg(const StepComparison& step, bool with_title) {
  const std::vector<Part> parts = laid_out(step, with_title ? 48 : 6);
  const double bottom = parts.back().bottom();
  const double height = bottom + (has_shades(parts) ? 92 : 72);
  const std::string size = decimal(kPictureWidth, 0) + " " + decimal(height, 0);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\"" +
                    svg::attribute("width", decimal(kPictureWidth, 0)) +
                    svg::attribute("height", decimal(height, 0)) +
                    svg::attribute("viewBox", "0 0 " + size) +
                    svg::attribute("aria-label", step.title) +
                    svg::attribute("font-family", "system-ui, sans-serif") +
                    ">\n" + dark_style();
  out += svg::rect({0, 0, kPictureWidth, height}, "#ffffff", 0, "ground");
  if (with_title) {
    out += svg::text(
        20, 33, step.title, {.size = 18, .fill = kText, .css = "ink"});
  }
  Seconds length;
  for (const Part& part : parts) {
    length = std::max(length, drawn_length(*part.timeline));
  }
  const Ticks marks = ticks(length);
  out += picture_rows(step, parts, marks);
  out += time_axis(marks, parts.back().scale, bottom);
  return out + picture_legend(parts, bottom + 44) + "</svg>\n";
}

}  // namespace cleave
