#include "cleave/report/console.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <sstream>

namespace cleave {
namespace {

RunStarted run_started() {
  return {.model = "mnist",
          .stages = 2,
          .microbatches = 8,
          .schedule = "1f1b",
          .steps = 4,
          .epochs = 2,
          .batch = 256,
          .predicted_step = Seconds{0.01}};
}

StepDone step(std::int64_t number) {
  return {.step = number,
          .epoch = (number + 1) / 2,
          .samples = 256,
          .loss = 2.0 / static_cast<double>(number),
          .learning_rate = 1e-3,
          .gradient_norm = {},
          .duration = {0.0125},
          .bubble = 0.12,
          .peak_memory = {Bytes{1 << 20}, Bytes{3 << 20}}};
}

Evaluated evaluated() {
  return {.step = 4,
          .data = "test",
          .evaluation = {.loss = 0.5, .accuracy = 0.875, .samples = 1000}};
}

RunEnded run_ended() {
  return {.steps = 4,
          .interrupted = false,
          .duration = {2},
          .median_step = {0.0125},
          .median_computing = {0.0088},
          .predicted_step = Seconds{0.01},
          .predicted_computing = Seconds{0.008}};
}

// A console whose time stands still until a test moves it.
struct Screen {
  explicit Screen(ConsoleOptions options)
      : sink(std::make_unique<ConsoleSink>(
            out, options, [this] { return now; })) {}

  // What was written since the last call.
  std::string take() {
    std::string text = out.str();
    out.str("");
    return text;
  }

  std::ostringstream out;
  Seconds now{1000};
  std::unique_ptr<ConsoleSink> sink;
};

TEST(ConsoleLines, a_run_reads_from_top_to_bottom) {
  Screen screen({.log_every = 1});
  StepDone clipped = step(2);
  clipped.gradient_norm = 1.25;
  screen.sink->on(run_started());
  screen.sink->on(step(1));
  screen.sink->on(clipped);
  screen.sink->on(evaluated());
  screen.sink->on(run_ended());
  EXPECT_EQ(
      screen.take(),
      "mnist | stages 2 | microbatches 8 | schedule 1f1b | batch 256 | steps 4 "
      "| epochs 2 | predicted 10.0 ms/step\n"
      "step 1/4 | epoch 1/2 | loss 2 | lr 0.001 | 20480 samples/s | 12.5 "
      "ms/step | bubble 12% | peak 3.00 MiB\n"
      "step 2/4 | epoch 1/2 | loss 1 | norm 1.25 | lr 0.001 | 20480 samples/s "
      "| 12.5 ms/step | bubble 12% | peak 3.00 MiB\n"
      "test after step 4 | loss 0.5 | accuracy 87.50% | 1000 samples\n"
      "done | 4 steps in 2.00 s | median 12.5 ms/step | predicted 10.0 ms/step "
      "| measured/predicted 1.25 (computing 1.10)\n");
}

TEST(ConsoleLines, a_second_run_begins_anew) {
  Screen screen({.log_every = 3});
  for (int run = 0; run < 2; ++run) {
    screen.sink->on(run_started());
    screen.take();
    screen.sink->on(step(1));
    const std::string first = screen.take();
    EXPECT_NE(first.find("| 12.5 ms/step |"), std::string::npos) << first;
    StepDone slow = step(2);  // no line is due
    slow.duration = {10};
    screen.sink->on(slow);
    screen.sink->on(run_ended());
    screen.take();
  }
}

TEST(ConsoleLines, a_long_run_has_about_twenty_step_lines) {
  Screen screen({});
  RunStarted run = run_started();
  run.steps = 1017;
  screen.sink->on(run);
  for (std::int64_t i = 1; i <= run.steps; ++i) {
    screen.sink->on(step(i));
  }
  const std::string text = screen.take();
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 20);
  EXPECT_LE(lines, 24);
  EXPECT_NE(text.find("\nstep    1/1017 |"), std::string::npos);
  EXPECT_NE(text.find("\nstep   50/1017 |"), std::string::npos);
  EXPECT_NE(text.find("\nstep 1017/1017 |"), std::string::npos);
}

TEST(ConsoleLines, times_are_means_over_the_steps_since_the_last_line) {
  Screen screen({.log_every = 4});
  screen.sink->on(run_started());
  screen.sink->on(step(1));
  for (std::int64_t i = 2; i <= 4; ++i) {
    StepDone one = step(i);
    one.duration = {0.010 * static_cast<double>(i)};
    one.bubble = 0.1 * static_cast<double>(i);
    screen.sink->on(one);
  }
  const std::string text = screen.take();
  EXPECT_NE(text.find("8533 samples/s | 30.0 ms/step | bubble 30%"),
            std::string::npos)
      << text;
}

TEST(ConsoleLines, a_loss_that_is_no_number_is_shown_as_such) {
  Screen screen({.colour = true, .log_every = 1});
  StepDone broken = step(1);
  broken.loss = std::nan("");
  screen.sink->on(broken);
  const std::string text = screen.take();
  EXPECT_NE(text.find("loss nan"), std::string::npos) << text;
  EXPECT_EQ(text.find("\x1b[31mstep 1 "), 0U) << text;
  EXPECT_EQ(text.substr(text.size() - 5), "\x1b[0m\n");
}

TEST(ConsoleLines, an_interrupted_run_says_how_far_it_came) {
  Screen screen({});
  screen.sink->on(run_started());
  screen.take();
  screen.sink->on(RunEnded{.steps = 3,
                           .interrupted = true,
                           .duration = {125},
                           .median_step = {0.5},
                           .predicted_step = {}});
  EXPECT_EQ(screen.take(),
            "stopped before the end | 3/4 steps in 02:05 | median 500 "
            "ms/step\n");
}

TEST(ConsoleLines, a_run_without_a_step_has_no_median_and_no_ratio) {
  Screen screen({});
  screen.sink->on(RunEnded{.steps = 0,
                           .interrupted = false,
                           .duration = {},
                           .median_step = {},
                           .predicted_step = Seconds{0.01}});
  EXPECT_EQ(screen.take(), "done | 0 steps in 0 s\n");
}

TEST(ConsoleBar, the_bar_is_drawn_over_itself) {
  Screen screen({.terminal = true, .width = 81});
  screen.sink->on(run_started());
  EXPECT_EQ(screen.take(),
            "mnist | stages 2 | microbatches 8 | schedule 1f1b | batch 256 | "
            "steps 4 | epochs 2 | predicted 10.0 ms/step\n"
            "\rtrain:   0%|" +
                std::string(44, ' ') + "| 0/4 [00:00<?, ?step/s]");
  screen.now += Seconds{2};
  screen.sink->on(step(1));
  EXPECT_EQ(screen.take(),
            "\rtrain:  25%|████            | 1/4 [00:02<00:06,  2.00s/step, "
            "loss=2, bubble=12%]");
}

TEST(ConsoleBar, it_is_drawn_at_most_ten_times_a_second_but_always_at_the_end) {
  Screen screen({.terminal = true});
  screen.sink->on(run_started());
  screen.take();
  screen.now += Seconds{0.05};
  screen.sink->on(step(1));
  EXPECT_EQ(screen.take(), "");
  screen.now += Seconds{0.06};
  screen.sink->on(step(2));
  EXPECT_NE(screen.take().find("| 2/4 ["), std::string::npos);
  screen.sink->on(step(3));
  EXPECT_EQ(screen.take(), "");
  screen.sink->on(step(4));
  EXPECT_NE(screen.take().find("| 4/4 ["), std::string::npos);
}

TEST(ConsoleBar, an_evaluation_takes_the_bars_line_and_the_bar_moves_down) {
  Screen screen({.terminal = true, .width = 81});
  screen.sink->on(run_started());
  screen.now += Seconds{2};
  screen.sink->on(step(1));
  screen.take();
  screen.sink->on(evaluated());
  EXPECT_EQ(screen.take(),
            "\rtest after step 4 | loss 0.5 | accuracy 87.50% | 1000 samples" +
                std::string(19, ' ') +
                "\n\rtrain:  25%|████            | 1/4 [00:02<00:06,  "
                "2.00s/step, loss=2, bubble=12%]");
}

TEST(ConsoleBar, colours_do_not_change_the_padding) {
  Screen screen({.terminal = true, .width = 81, .colour = true});
  screen.sink->on(run_started());
  screen.take();
  screen.sink->on(evaluated());
  EXPECT_EQ(screen.take().find("\r\x1b[32mtest after step 4 | loss 0.5 | "
                               "accuracy 87.50% | 1000 samples" +
                               std::string(19, ' ') + "\x1b[0m\n\rtrain:"),
            0U);
}

TEST(ConsoleBar, the_end_finishes_the_bar_and_adds_the_summary) {
  Screen screen({.terminal = true, .width = 81, .ascii = true});
  screen.sink->on(run_started());
  screen.now += Seconds{2};
  screen.sink->on(step(4));
  screen.take();
  screen.sink->on(run_ended());
  EXPECT_EQ(screen.take(),
            "\rtrain: 100%|##############| 4/4 [00:02<00:00,  2.00step/s, "
            "loss=0.5, bubble=12%]\n"
            "done | 4 steps in 2.00 s | median 12.5 ms/step | predicted 10.0 "
            "ms/step | measured/predicted 1.25 (computing 1.10)\n");
  screen.sink.reset();
  EXPECT_EQ(screen.take(), "");
}

TEST(ConsoleBar, a_sink_that_dies_mid_run_leaves_the_cursor_on_a_new_line) {
  Screen screen({.terminal = true});
  screen.sink->on(run_started());
  screen.sink->on(step(1));
  screen.take();
  screen.sink.reset();
  EXPECT_EQ(screen.take(), "\n");
}

TEST(ConsoleBar, a_loss_that_is_no_number_turns_the_bar_red) {
  Screen screen({.terminal = true, .colour = true});
  screen.sink->on(run_started());
  screen.take();
  StepDone broken = step(4);
  broken.loss = -std::numeric_limits<double>::infinity();
  screen.sink->on(broken);
  const std::string text = screen.take();
  EXPECT_EQ(text.find("\r\x1b[31mtrain: 100%|"), 0U) << text;
  EXPECT_NE(text.find("loss=-inf"), std::string::npos) << text;
}

}  // namespace
}  // namespace cleave
