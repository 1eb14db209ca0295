#include "cleave/report/plan_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "cleave/counted.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

constexpr int kTableWidth = 100;
constexpr int kLeastLayersWidth = 20;
constexpr int kMostModelWidth = 30;
constexpr int kMostDeviceWidth = 12;
constexpr int kBarCells = 6;
constexpr int kGap = 2;  // between columns
constexpr std::size_t kLayersColumn = 2;

struct Symbols {
  std::array<const char*, 9> cells;  // of a bar: none to eight eighths full
  const char* rule;
  const char* dots;
};

constexpr Symbols kUnicode{
    {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"}, "─", "…"};
constexpr Symbols kAscii{
    {".", ".", ".", ".", "#", "#", "#", "#", "#"}, "-", ".."};

struct Column {
  std::string title;
  bool right = false;  // numbers are aligned to the right
  std::vector<std::string> cells;

  int width() const {
    int widest = columns(title);
    for (const std::string& cell : cells) {
      widest = std::max(widest, columns(cell));
    }
    return widest;
  }
};

std::string repeated(const char* text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) {
    result += text;
  }
  return result;
}

std::string aligned(const std::string& text, int width, bool right) {
  const std::string space(std::max(0, width - columns(text)), ' ');
  return right ? space + text : text + space;
}

// The end of a name tells more than its beginning ("…layers.11.mlp").
std::string shortened(const std::string& name, int width, const char* dots) {
  const int all = columns(name);
  if (all <= width) {
    return name;
  }
  const int dropped = all - std::max(0, width - columns(dots));
  return dots + name.substr(first_columns(name, dropped).size());
}

// "embed … block.3.mlp (9)", in at most `width` columns.
std::string layers_text(const std::vector<std::string>& layers,
                        int width,
                        const char* dots) {
  if (layers.empty()) {
    return "-";
  }
  if (layers.size() == 1) {
    return shortened(layers.front(), width, dots);
  }
  const std::string between = std::string(" ") + dots + " ";
  const std::string count = " (" + std::to_string(layers.size()) + ")";
  const int names = width - columns(between) - columns(count);
  // A short name leaves its room to the other.
  const int last = std::max(names / 2, names - columns(layers.front()));
  const int first = std::max(names - last, names - columns(layers.back()));
  return shortened(layers.front(), first, dots) + between +
         shortened(layers.back(), last, dots) + count;
}

// Of one microbatch, with the weight gradients.
Seconds backward_of(const StagePrediction& stage) {
  return stage.cost.backward + stage.cost.weight;
}

Seconds time_of(const StagePrediction& stage) {
  return stage.cost.forward + backward_of(stage);
}

Seconds slowest(const Prediction& prediction) {
  Seconds most;
  for (const StagePrediction& stage : prediction.stages) {
    most = std::max(most, time_of(stage));
  }
  return most;
}

Seconds mean_time(const Prediction& prediction) {
  Seconds sum;
  for (const StagePrediction& stage : prediction.stages) {
    sum += time_of(stage);
  }
  return sum / static_cast<double>(prediction.stages.size());
}

// "█████▋  94%"
std::string bar(double share, const Symbols& symbols) {
  const long eighths = std::lround(share * kBarCells * 8);
  std::string text;
  for (long cell = 0; cell < kBarCells; ++cell) {
    text += symbols.cells[std::clamp(eighths - 8 * cell, 0L, 8L)];
  }
  return text + aligned(percent(share), 5, true);
}

// How ranks pick their next action; nothing where there is only one.
std::string runner_text(const Plan& plan) {
  if (plan.steals) {
    return " | ranks steal work";
  }
  const bool says = plan.devices.size() > 1 && !plan.in_order_because.empty();
  return says ? " | ranks in order: " + plan.in_order_because : "";
}

std::string heading(const Plan& plan, const Symbols& symbols) {
  std::int64_t layers = 0;
  for (const StagePlan& stage : plan.stages) {
    layers += std::ssize(stage.layers);
  }
  const int microbatches = plan.schedule.microbatches;
  const std::int64_t parts = std::int64_t{plan.replicas} * microbatches;
  const std::int64_t least = plan.batch / parts;
  const bool even = plan.batch % parts == 0;
  const std::string each =
      plan.replicas == 1 ? "" : std::to_string(plan.replicas) + " x ";
  return shortened(plan.model, kMostModelWidth, symbols.dots) + " | " +
         counted(layers, "layer") + " | batch " + std::to_string(plan.batch) +
         " in " + each + std::to_string(microbatches) +
         (microbatches == 1 ? " microbatch of " : " microbatches of ") +
         (even ? "" : std::to_string(least) + " or ") +
         counted(even ? least : least + 1, "sample") + " | " +
         (plan.replicas == 1 ? "" : counted(plan.replicas, "replica") + " | ") +
         "schedule " + plan.schedule_name + runner_text(plan);
}

std::string prediction_line(const Plan& plan) {
  if (!plan.prediction) {
    return "not predicted";
  }
  const Prediction& predicted = *plan.prediction;
  const double rate = static_cast<double>(plan.batch) / predicted.step.value;
  const Seconds most = slowest(predicted);
  std::string text = "predicted | step " + to_text(predicted.step) + " | " +
                     decimal(rate, rate < 100 ? 1 : 0) +
                     " samples/s | bubble " + percent(predicted.bubble);
  if (predicted.stages.size() > 1 && most.value > 0) {
    text += " | slowest stage " + decimal(most / mean_time(predicted), 2) +
            " x the mean";
  }
  return text;
}

// Why the plan has so many replicas; nothing where nobody had to choose.
std::string comparison(const Plan& plan) {
  std::string text;
  if (!plan.prediction) {
    return text;
  }
  for (const MeshTried& mesh : plan.prediction->compared) {
    text += text.empty() ? "compared  | " : "          | ";
    text += counted(mesh.replicas, "replica") + " of " +
            counted(mesh.devices, "device") + ": ";
    text += mesh.step.value <= 0 ? "no plan is possible"
                                 : "step " + to_text(mesh.step) +
                                       ", largest peak " + to_text(mesh.peak);
    text += mesh.replicas == plan.replicas ? ", chosen\n" : "\n";
  }
  return text;
}

// Parameters, forward, backward, peak and load of a stage.
std::vector<std::string> predicted_cells(const Plan& plan,
                                         std::size_t index,
                                         const Symbols& symbols) {
  if (!plan.prediction) {
    return std::vector<std::string>(5, "-");
  }
  const StagePrediction& stage = plan.prediction->stages.at(index);
  const Seconds most = slowest(*plan.prediction);
  const double share = most.value > 0 ? time_of(stage) / most : 0;
  const int rank = plan.stages[index].rank.value;
  return {to_text(stage.parameters),
          to_text(stage.cost.forward),
          to_text(backward_of(stage)),
          to_text(plan.prediction->peaks.at(rank)),
          bar(share, symbols)};
}

// One row per stage; the layers are still to be written, into the room left.
std::vector<Column> columns_of(const Plan& plan, const Symbols& symbols) {
  std::vector<Column> table{{"stage", true, {}},
                            {"device", false, {}},
                            {"layers", false, {}},
                            {"parameters", true, {}},
                            {"forward", true, {}},
                            {"backward", true, {}},
                            {"peak", true, {}},
                            {"load", false, {}}};
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const int rank = plan.stages[stage].rank.value;
    std::vector<std::string> row{
        std::to_string(stage),
        shortened(plan.devices.at(rank).name, kMostDeviceWidth, symbols.dots),
        ""};
    const std::vector<std::string> rest = predicted_cells(plan, stage, symbols);
    row.insert(row.end(), rest.begin(), rest.end());
    for (std::size_t i = 0; i < row.size(); ++i) {
      table[i].cells.push_back(row[i]);
    }
  }
  return table;
}

std::string drawn(const std::vector<Column>& table, const Symbols& symbols) {
  std::string titles;
  std::string rules;
  std::vector<std::string> rows(table.front().cells.size());
  for (const Column& column : table) {
    const std::string gap(&column == &table.front() ? 0 : kGap, ' ');
    const int width = column.width();
    titles += gap + aligned(column.title, width, column.right);
    rules += gap + repeated(symbols.rule, width);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] += gap + aligned(column.cells[i], width, column.right);
    }
  }
  std::string text;
  rows.insert(rows.begin(), {titles, rules});
  for (std::string& row : rows) {
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace

std::string plan_table(const Plan& plan, bool ascii) {
  const Symbols& symbols = ascii ? kAscii : kUnicode;
  std::vector<Column> table = columns_of(plan, symbols);
  Column& layers = table[kLayersColumn];
  int room = kTableWidth + layers.width();
  for (const Column& column : table) {
    room -= column.width() + (&column == &table.front() ? 0 : kGap);
  }
  room = std::max(room, kLeastLayersWidth);
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    layers.cells[i] = layers_text(plan.stages[i].layers, room, symbols.dots);
  }
  return heading(plan, symbols) + "\n\n" + drawn(table, symbols) + "\n" +
         prediction_line(plan) + "\n" + comparison(plan);
}

}  // namespace cleave
