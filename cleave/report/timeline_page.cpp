#include "cleave/report/timeline_page.h"

#include <algorithm>
#include <string_view>

#include "cleave/report/svg.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

constexpr std::string_view kStyle = R"(<style>
:root { color-scheme: light dark; --ground: #ffffff; --text: #24303c;
  --faint: #5c6975; --line: #d3d9df; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14191f; --text: #e4e9ee; --faint: #9aa7b3;
    --line: #3c4650; } }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 24px 20px 40px; }
h1 { font-size: 21px; font-weight: 600; margin: 0 0 14px; }
.figures { display: flex; flex-wrap: wrap; gap: 10px 36px; margin: 0 0 18px; }
.figures dt { color: var(--faint); font-size: 13px; }
.figures dd { margin: 0; font-size: 22px; font-variant-numeric: tabular-nums; }
figure { margin: 0; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 800px; height: auto; }
.action:hover rect { stroke: currentColor; stroke-width: 1.5; }
table { border-collapse: collapse; margin-top: 20px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 5px 26px 5px 0; text-align: right;
  border-bottom: 1px solid var(--line); }
th { color: var(--faint); font-weight: 500; font-size: 13px; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {
  text-align: left; }
</style>
)";

std::string element(std::string_view tag, std::string_view words) {
  const std::string name(tag);
  return "<" + name + ">" + svg::escaped(words) + "</" + name + ">";
}

std::string figure(std::string_view name, std::string_view value) {
  return "<div>" + element("dt", name) + element("dd", value) + "</div>\n";
}

std::string bubble_figure(const Timeline& timeline) {
  return decimal(100 * timeline.bubble(), 1) + " %";
}

std::string figures(const StepComparison& step) {
  const Timeline& measured = step.measured;
  std::string out = "<dl class=\"figures\">\n";
  if (step.predicted) {
    out += figure("predicted step", to_text(step.predicted->length));
  }
  out += figure("measured step", to_text(measured.length));
  if (step.predicted && step.predicted->length.value > 0) {
    out += figure("measured ÷ predicted",
                  decimal(measured.length / step.predicted->length, 2));
  }
  if (step.predicted) {
    out += figure("predicted bubble", bubble_figure(*step.predicted));
  }
  out += figure("measured bubble", bubble_figure(measured));
  return out + "</dl>\n";
}

// "67% (18.0 ms)"; a dash where the timeline has no such rank.
std::string busy_text(const Timeline& timeline, std::size_t rank) {
  return rank < timeline.busy.size()
             ? percent(busy_share(timeline, rank)) + " (" +
                   to_text(timeline.busy[rank]) + ")"
             : "–";
}

std::string busy_row(const StepComparison& step, std::size_t rank) {
  const bool is_measured = rank < step.measured.rows.size();
  const Timeline& shown = is_measured ? step.measured : *step.predicted;
  std::string out = "<tr>" + element("td", device_name(step, rank)) +
                    element("td", stages_text(shown.rows[rank]));
  if (step.predicted) {
    out += element("td", busy_text(*step.predicted, rank));
  }
  return out + element("td", busy_text(step.measured, rank)) + "</tr>\n";
}

std::string busy_table(const StepComparison& step) {
  const std::size_t ranks =
      std::max(step.measured.rows.size(),
               step.predicted ? step.predicted->rows.size() : 0);
  std::string out = "<table>\n<thead><tr>" + element("th", "device") +
                    element("th", "stages");
  if (step.predicted) {
    out += element("th", "busy, predicted");
  }
  out += element("th", "busy, measured") + "</tr></thead>\n<tbody>\n";
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    out += busy_row(step, rank);
  }
  return out + "</tbody>\n</table>\n";
}

}  // namespace

std::string timeline_page(const StepComparison& step) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
         "<meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width\"/>\n" +
         element("title", step.title) + "\n" + std::string(kStyle) +
         "</head>\n<body>\n<main>\n" + element("h1", step.title) + "\n" +
         figures(step) + "<figure>\n" + timeline_svg(step, false) +
         "</figure>\n" + busy_table(step) + "</main>\n</body>\n</html>\n";
}

}  // namespace cleave
