#include "cleave/report/progress_bar.h"

#include <gtest/gtest.h>

#include "cleave/report/text.h"

// The goldens are tqdm's own (tqdm.format_meter with the same arguments).
namespace cleave {
namespace {

Progress part() {
  return {.label = "train",
          .done = 42,
          .total = 100,
          .elapsed = {12.3},
          .note = "loss=0.412, bubble=12%"};
}

Progress progress(std::int64_t done, std::int64_t total, double elapsed) {
  return {.label = "train", .done = done, .total = total, .elapsed = {elapsed}};
}

TEST(ProgressBar, without_a_width_the_bar_has_ten_cells) {
  EXPECT_EQ(progress_line(part(), 0, false),
            "train:  42%|████▏     | 42/100 [00:12<00:16,  3.41step/s, "
            "loss=0.412, bubble=12%]");
  EXPECT_EQ(progress_line(progress(42, 100, 12.3), 0, true),
            "train:  42%|####2     | 42/100 [00:12<00:16,  3.41step/s]");
}

TEST(ProgressBar, the_bar_takes_what_the_width_leaves) {
  EXPECT_EQ(progress_line(part(), 80, false),
            "train:  42%|███▊     | 42/100 [00:12<00:16,  3.41step/s, "
            "loss=0.412, bubble=12%]");
  EXPECT_EQ(progress_line(part(), 100, false),
            "train:  42%|████████████▏                | 42/100 [00:12<00:16,  "
            "3.41step/s, loss=0.412, bubble=12%]");
  EXPECT_EQ(progress_line(part(), 100, true),
            "train:  42%|############1                | 42/100 [00:12<00:16,  "
            "3.41step/s, loss=0.412, bubble=12%]");
}

TEST(ProgressBar, a_narrow_terminal_cuts_the_end_off) {
  EXPECT_EQ(progress_line(part(), 60, false),
            "train:  42%|▍| 42/100 [00:12<00:16,  3.41step/s, loss=0.412,");
  EXPECT_EQ(progress_line(part(), 40, false),
            "train:  42%|▍| 42/100 [00:12<00:16,  3.4");
}

TEST(ProgressBar, no_line_is_wider_than_asked) {
  for (int width = 1; width < 120; ++width) {
    for (std::int64_t done = 0; done <= 105; done += 7) {
      const Progress some =
          progress(done, 100, 0.1 * static_cast<double>(done));
      EXPECT_LE(columns(progress_line(some, width, false)), width);
      EXPECT_LE(columns(progress_line(some, width, true)), width);
    }
  }
}

TEST(ProgressBar, nothing_done_has_no_rate_and_no_time_left) {
  EXPECT_EQ(progress_line(progress(0, 100, 0), 0, false),
            "train:   0%|          | 0/100 [00:00<?, ?step/s]");
  EXPECT_EQ(progress_line(progress(0, 100, 3), 0, true),
            "train:   0%|          | 0/100 [00:03<?, ?step/s]");
}

TEST(ProgressBar, everything_done_is_a_full_bar) {
  EXPECT_EQ(progress_line(progress(100, 100, 8), 0, false),
            "train: 100%|██████████| 100/100 [00:08<00:00, 12.50step/s]");
  EXPECT_EQ(progress_line(progress(100, 100, 8), 0, true),
            "train: 100%|##########| 100/100 [00:08<00:00, 12.50step/s]");
  EXPECT_EQ(progress_line(progress(995, 1000, 1), 0, false),
            "train: 100%|█████████▉| 995/1000 [00:01<00:00, 995.00step/s]");
}

TEST(ProgressBar, without_a_known_total_there_is_no_bar) {
  EXPECT_EQ(progress_line(progress(7, 0, 2), 80, false),
            "train: 7step [00:02,  3.50step/s]");
  EXPECT_EQ(progress_line(progress(7, 5, 2), 80, false),
            "train: 7step [00:02,  3.50step/s]");
}

TEST(ProgressBar, a_step_of_more_than_a_second_shows_seconds_per_step) {
  EXPECT_EQ(progress_line(progress(3, 9, 10), 0, false),
            "train:  33%|███▎      | 3/9 [00:10<00:20,  3.33s/step]");
  EXPECT_EQ(progress_line(progress(3, 9, 4000), 0, false),
            "train:  33%|███▎      | 3/9 [1:06:40<2:13:20, 1333.33s/step]");
  EXPECT_EQ(progress_line(progress(1, 1, 1), 0, true),
            "train: 100%|##########| 1/1 [00:01<00:00,  1.00step/s]");
}

TEST(ProgressBar, a_bar_may_stand_without_a_label) {
  EXPECT_EQ(
      progress_line({.done = 4000, .total = 9000, .elapsed = {4}}, 0, false),
      " 44%|████▍     | 4000/9000 [00:04<00:05, 1000.00step/s]");
}

TEST(Text, columns_are_code_points_not_bytes) {
  EXPECT_EQ(columns("a█▏ü"), 4);
  EXPECT_EQ(first_columns("a█▏ü", 2), "a█");
  EXPECT_EQ(first_columns("a█", 0), "");
  EXPECT_EQ(first_columns("a█", 9), "a█");
}

}  // namespace
}  // namespace cleave
