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
  double bottom_of(std::size_t rank) const { return place(rank).y + pitch; }
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

// In every part.
std::vector<Op> all_ops(const std::vector<Part>& parts) {
  std::vector<std::vector<Span>> rows;
  for (const Part& part : parts) {
    rows.insert(
        rows.end(), part.timeline->rows.begin(), part.timeline->rows.end());
  }
  return ops_of(rows);
}

bool has_shades(const std::vector<Part>& parts) {
  return std::ranges::any_of(parts, [](const Part& part) {
    return std::ranges::any_of(part.timeline->rows, [](const auto& row) {
      return stages_of(row).size() > 1;
    });
  });
}

struct PictureLegend {
  std::string svg;
  int lines = 0;
};

// What blocks are, what marks are, what shades are: each a line from `y` down.
PictureLegend picture_legend(const std::vector<Part>& parts, double y) {
  constexpr double kPitch = 22;
  const svg::TextStyle style{.size = 12, .fill = kText, .css = "ink"};
  const std::vector<Op> ops = all_ops(parts);
  std::vector<LegendItem> blocks = block_items(ops);
  blocks.push_back({std::string(kIdle), "idle", "idle"});
  PictureLegend drawn{legend(blocks, kNames, y), 1};
  if (parts.size() > 1) {
    const double x = kNames + legend_width(blocks);
    drawn.svg += dashed(x + 7, y - 1, 16);
    drawn.svg += svg::text(x + 16, y + 11, "end of the prediction", style);
  }
  if (const auto marks = mark_items(ops); !marks.empty()) {
    drawn.svg += legend(marks, kNames, y + kPitch * drawn.lines);
    ++drawn.lines;
  }
  if (has_shades(parts)) {
    drawn.svg += svg::text(kNames,
                           y + 11 + kPitch * drawn.lines,
                           "darker: a later stage of the same device",
                           style);
    ++drawn.lines;
  }
  drawn.svg += "\n";
  return drawn;
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
      blocks += network_marks(part.timeline->rows[rank],
                              part.scale,
                              part.place(rank),
                              part.bottom_of(rank),
                              kPlotRight);
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
  const PictureLegend below = picture_legend(parts, bottom + 44);
  const double height = bottom + 50 + 22 * below.lines;
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
  return out + below.svg + "</svg>\n";
}

}  // namespace cleave
