#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "cleave/event.h"
#include "cleave/units.h"

namespace cleave {

struct ConsoleOptions {
  bool terminal = false;  // a live bar; else plain lines
  int width = 80;         // columns of the terminal
  bool colour = false;    // evaluations green, losses that are no number red
  bool ascii = false;     // draw the bar without Unicode blocks
  std::int64_t log_every = 0;  // steps per plain line; 0: about 20 lines a run
};

// Shows a run to a person. On a terminal: a bar that is redrawn in place, at
// most ten times a second, with everything else on lines above it. Elsewhere:
// a line every `log_every` steps, whose times and bubble are means over the
// steps since the line before. The cursor never stays in the middle of a line
// once the sink is gone. Borrows `out`.
class ConsoleSink : public EventSink {
 public:
  // `clock` tells the time since any fixed moment.
  ConsoleSink(std::ostream& out,
              ConsoleOptions options,
              std::function<Seconds()> clock);
  ~ConsoleSink() override;
  ConsoleSink(const ConsoleSink&) = delete;
  ConsoleSink& operator=(const ConsoleSink&) = delete;

  void on(const Event& event) override;

 private:
  // What happened since the last plain line.
  struct Window {
    std::int64_t steps = 0;
    std::int64_t samples = 0;
    Seconds duration;
    double bubble = 0;  // summed over the steps
  };

  void show(const RunStarted& event);
  void show(const StepDone& event);
  void show(const Evaluated& event);
  void show(const RunEnded& event);

  bool line_is_due(std::int64_t step) const;
  std::string step_line(const StepDone& event) const;
  void write_line(const std::string& text, const char* colour);
  void draw_bar();
  void end_bar();

  std::ostream& out_;
  const ConsoleOptions options_;
  const std::function<Seconds()> clock_;

  RunStarted run_;
  StepDone last_;  // the newest step; none yet when it counts zero
  Window window_;
  Seconds started_;
  Seconds drawn_;      // when the bar was last drawn
  int bar_width_ = 0;  // columns of the bar under the cursor; 0: none
};

}  // namespace cleave
