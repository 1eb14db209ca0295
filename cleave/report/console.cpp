#include "cleave/report/console.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "cleave/report/progress_bar.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

constexpr Seconds kRedraw{0.1};
constexpr std::int64_t kLinesPerRun = 20;

constexpr const char* kPlain = "";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kNoColour = "\x1b[0m";

const char* colour_of(double loss, const char* usual) {
  return std::isfinite(loss) ? usual : kRed;
}

// "step 10/700 | epoch 1/3 | loss 0.412"
std::string joined(const std::vector<std::string>& parts) {
  std::string line;
  for (const std::string& part : parts) {
    line += (line.empty() ? "" : " | ") + part;
  }
  return line;
}

std::string padded(std::string text, int width) {
  text.append(std::max(0, width - columns(text)), ' ');
  return text;
}

// "7", "7/20", " 7/20": aligned where the total is known.
std::string out_of(std::int64_t done, std::int64_t total) {
  std::string text = std::to_string(done);
  if (total > 0) {
    const std::string all = std::to_string(total);
    text.insert(0, all.size() - std::min(all.size(), text.size()), ' ');
    text += "/" + all;
  }
  return text;
}

std::string per_step(Seconds duration) {
  return to_text(duration) + "/step";
}

std::string start_line(const RunStarted& run) {
  std::vector<std::string> parts{
      run.model,
      "stages " + std::to_string(run.stages),
      "microbatches " + std::to_string(run.microbatches),
      "schedule " + run.schedule,
      "batch " + std::to_string(run.batch),
      "steps " + std::to_string(run.steps),
      "epochs " + std::to_string(run.epochs)};
  if (run.replicas > 1) {
    parts.insert(parts.begin() + 2,
                 "replicas " + std::to_string(run.replicas) +
                     ", each with its part of every batch");
  }
  if (run.predicted_step) {
    parts.push_back("predicted " + per_step(*run.predicted_step));
  }
  return joined(parts);
}

std::string evaluation_line(const Evaluated& event) {
  std::vector<std::string> parts{
      event.data + " after step " + std::to_string(event.step),
      "loss " + significant(event.evaluation.loss, 4)};
  if (event.evaluation.accuracy) {
    parts.push_back("accuracy " + decimal(100 * *event.evaluation.accuracy, 2) +
                    "%");
  }
  parts.push_back(std::to_string(event.evaluation.samples) + " samples");
  return joined(parts);
}

// How much of that is devices that were faster or slower than when they were
// measured.
std::string computing_note(const RunEnded& event) {
  if (!event.predicted_computing || event.predicted_computing->value <= 0) {
    return "";
  }
  const double ratio = event.median_computing / *event.predicted_computing;
  return " (computing " + decimal(ratio, 2) + ")";
}

std::string summary_line(const RunEnded& event, std::int64_t planned) {
  const Seconds whole = event.duration;
  std::vector<std::string> parts{
      event.interrupted ? "stopped before the end" : "done",
      out_of(event.steps, event.interrupted ? planned : 0) + " steps in " +
          (whole.value < 60 ? to_text(whole) : clock_text(whole))};
  if (event.steps > 0) {
    parts.push_back("median " + per_step(event.median_step));
  }
  if (event.steps > 0 && event.predicted_step &&
      event.predicted_step->value > 0) {
    parts.push_back("predicted " + per_step(*event.predicted_step));
    parts.push_back("measured/predicted " +
                    decimal(event.median_step / *event.predicted_step, 2) +
                    computing_note(event));
  }
  return joined(parts);
}

}  // namespace

ConsoleSink::ConsoleSink(std::ostream& out,
                         ConsoleOptions options,
                         std::function<Seconds()> clock)
    : out_(out),
      options_(options),
      clock_(std::move(clock)),
      started_(clock_()) {}

ConsoleSink::~ConsoleSink() {
  end_bar();
}

void ConsoleSink::on(const Event& event) {
  std::visit([this](const auto& kind) { show(kind); }, event);
  out_.flush();
}

void ConsoleSink::show(const RunStarted& event) {
  run_ = event;
  last_ = {};
  window_ = {};
  started_ = clock_();
  write_line(start_line(event), kPlain);
  if (options_.terminal) {
    draw_bar();
  }
}

void ConsoleSink::show(const StepDone& event) {
  last_ = event;
  ++window_.steps;
  window_.samples += event.samples;
  window_.duration += event.duration;
  window_.bubble += event.bubble;
  if (options_.terminal) {
    if (clock_() - drawn_ >= kRedraw || event.step == run_.steps) {
      draw_bar();
    }
  } else if (line_is_due(event.step)) {
    write_line(step_line(event), colour_of(event.loss, kPlain));
    window_ = {};
  }
}

void ConsoleSink::show(const Evaluated& event) {
  write_line(evaluation_line(event), colour_of(event.evaluation.loss, kGreen));
}

void ConsoleSink::show(const RunEnded& event) {
  if (bar_width_ > 0) {
    draw_bar();
    end_bar();
  }
  write_line(summary_line(event, run_.steps), kPlain);
}

bool ConsoleSink::line_is_due(std::int64_t step) const {
  const std::int64_t every =
      options_.log_every > 0
          ? options_.log_every
          : std::max<std::int64_t>(1, run_.steps / kLinesPerRun);
  return step == 1 || step == run_.steps || step % every == 0;
}

std::string ConsoleSink::step_line(const StepDone& event) const {
  const auto steps = static_cast<double>(window_.steps);
  std::vector<std::string> parts{"step " + out_of(event.step, run_.steps),
                                 "epoch " + out_of(event.epoch, run_.epochs),
                                 "loss " + significant(event.loss, 4)};
  if (event.gradient_norm) {
    parts.push_back("norm " + significant(*event.gradient_norm, 4));
  }
  parts.push_back("lr " + significant(event.learning_rate, 3));
  if (window_.duration.value > 0) {
    parts.push_back(
        decimal(static_cast<double>(window_.samples) / window_.duration.value,
                0) +
        " samples/s");
  }
  parts.push_back(per_step(window_.duration / steps));
  parts.push_back("bubble " + percent(window_.bubble / steps));
  if (!event.peak_memory.empty()) {
    parts.push_back("peak " +
                    to_text(*std::max_element(event.peak_memory.begin(),
                                              event.peak_memory.end())));
  }
  return joined(parts);
}

// Where a bar stands under the cursor, the line takes its place and the bar
// moves down.
void ConsoleSink::write_line(const std::string& text, const char* colour) {
  const bool move_bar = bar_width_ > 0;
  const bool coloured = options_.colour && *colour != '\0';
  out_ << (move_bar ? "\r" : "") << (coloured ? colour : "")
       << padded(text, bar_width_) << (coloured ? kNoColour : "") << '\n';
  bar_width_ = 0;
  if (move_bar) {
    draw_bar();
  }
}

void ConsoleSink::draw_bar() {
  Progress progress{.label = "train",
                    .done = last_.step,
                    .total = run_.steps,
                    .elapsed = clock_() - started_};
  const bool red = options_.colour && !std::isfinite(last_.loss);
  if (last_.step > 0) {
    progress.note = "loss=" + significant(last_.loss, 3) +
                    ", bubble=" + percent(last_.bubble);
  }
  // Some terminals wrap as soon as the last column is written.
  const std::string line =
      progress_line(progress, std::max(1, options_.width - 1), options_.ascii);
  out_ << '\r' << (red ? kRed : "") << padded(line, bar_width_)
       << (red ? kNoColour : "");
  bar_width_ = columns(line);
  drawn_ = clock_();
}

void ConsoleSink::end_bar() {
  if (bar_width_ > 0) {
    out_ << std::endl;
    bar_width_ = 0;
  }
}

}  // namespace cleave
