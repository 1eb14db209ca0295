#include "cleave/report/timeline_svg.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/schedule/generators/registry.h"
#include "tests/report/markup.h"
#include "tests/report/measured_step.h"

namespace cleave {
namespace {

constexpr StageCost kDrawnCost{.forward = Seconds{1e-3},
                               .backward = Seconds{2e-3},
                               .update = Seconds{0.5e-3},
                               .values = Seconds{50e-6},
                               .gradients = Seconds{50e-6},
                               .reduce = Seconds{1.5e-3}};

Timeline predicted_step(const Schedule& schedule) {
  return simulate(schedule,
                  {std::vector<StageCost>(schedule.stages(), kDrawnCost)});
}

StepComparison comparison(const Schedule& schedule) {
  StepComparison step{
      .title = "mlp, 1f1b",
      .predicted = predicted_step(schedule),
      .measured = measured_step(schedule, kDrawnCost),
  };
  for (std::size_t i = 0; i < schedule.rows.size(); ++i) {
    step.devices.push_back("cpu:" + std::to_string(i));
  }
  return step;
}

struct Block {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// The boxes of the groups of this class, in order.
std::vector<Block> boxes(const std::string& svg, const std::string& css) {
  std::vector<Block> found;
  bool inside = false;
  for (const std::string& tag : tags(svg)) {
    inside =
        tag == "g class=\"" + css + "\"" || (inside && !tag.starts_with("/g"));
    if (inside && tag.starts_with("rect")) {
      found.push_back({attribute(tag, "x"),
                       attribute(tag, "y"),
                       attribute(tag, "width"),
                       attribute(tag, "height")});
    }
  }
  return found;
}

TEST(TimelineSvg, draws_every_computation_and_every_message_once) {
  const std::string svg =
      timeline_svg(comparison(one_f_one_b({.ranks = 4, .microbatches = 6})));
  EXPECT_EQ(boxes(svg, "action").size(), 2 * 4 * (12 + 1));
  // A rank's first wait begins with the step, so none lies outside.
  EXPECT_EQ(boxes(svg, "message").size(), 3 * 6 * 4);
  EXPECT_EQ(unbalanced(svg), "");
}

TEST(TimelineSvg, the_prediction_stands_above_the_measurement) {
  const std::string svg =
      timeline_svg(comparison(one_f_one_b({.ranks = 4, .microbatches = 6})));
  const std::vector<Block> blocks = boxes(svg, "action");
  ASSERT_EQ(blocks.size(), 104);
  double lowest_predicted = 0;
  double highest_measured = 1e9;
  for (std::size_t i = 0; i < 52; ++i) {
    lowest_predicted =
        std::max(lowest_predicted, blocks[i].y + blocks[i].height);
    highest_measured = std::min(highest_measured, blocks[52 + i].y);
  }
  EXPECT_LT(lowest_predicted, highest_measured);
  EXPECT_LT(svg.find(">predicted<"), svg.find(">measured<"));
}

TEST(TimelineSvg, both_have_one_axis_of_time) {
  StepComparison step = comparison(gpipe({.ranks = 2, .microbatches = 2}));
  step.measured = *step.predicted;
  for (auto& row : step.measured.rows) {
    for (Span& span : row) {  // twice as slow, and from another zero
      span.start = Seconds{64} + 2 * span.start;
      span.end = Seconds{64} + 2 * span.end;
    }
  }
  step.measured.length = 2 * step.measured.length;
  const std::vector<Block> blocks = boxes(timeline_svg(step), "action");
  const std::size_t half = blocks.size() / 2;
  ASSERT_EQ(half, 8 + 2);
  const double left = blocks[0].x;
  for (std::size_t i = 0; i < half; ++i) {
    EXPECT_NEAR(blocks[half + i].x - left, 2 * (blocks[i].x - left), 0.03);
    // A gap of one follows every block.
    EXPECT_NEAR(blocks[half + i].width + 1, 2 * (blocks[i].width + 1), 0.03);
  }
}

TEST(TimelineSvg, blocks_of_a_row_do_not_overlap_and_messages_lie_below) {
  const std::string svg =
      timeline_svg(comparison(one_f_one_b({.ranks = 4, .microbatches = 6})));
  std::vector<Block> blocks = boxes(svg, "action");
  const std::vector<Block> marks = boxes(svg, "message");
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i].y == blocks[i - 1].y) {
      EXPECT_GE(blocks[i].x, blocks[i - 1].x + blocks[i - 1].width);
    }
  }
  for (const Block& mark : marks) {
    for (const Block& block : blocks) {
      EXPECT_TRUE(mark.y >= block.y + block.height ||
                  mark.y + mark.height <= block.y);
    }
  }
}

TEST(TimelineSvg, keeps_everything_inside_the_image) {
  for (const int stages : {1, 4, 40}) {
    StepComparison step =
        comparison(one_f_one_b({.ranks = stages, .microbatches = 50}));
    // Waiting since before the step, until after it.
    step.measured.rows[0].insert(
        step.measured.rows[0].begin(),
        {{.op = Op::receive_values}, Seconds{-5}, Seconds{5}});
    const std::string svg = timeline_svg(step);
    const std::vector<std::string> all = tags(svg);
    const double width = attribute(all[0], "width");
    const double height = attribute(all[0], "height");
    for (const std::string& tag : all) {
      if (tag.starts_with("rect ") || tag.starts_with("text ")) {
        EXPECT_GE(attribute(tag, "x"), 0) << tag;
        EXPECT_GE(attribute(tag, "y"), 0) << tag;
        EXPECT_LE(attribute(tag, "y"), height) << tag;
      }
      if (tag.starts_with("rect ")) {
        EXPECT_GT(attribute(tag, "width"), 0) << tag;
        EXPECT_GT(attribute(tag, "height"), 0) << tag;
        EXPECT_LE(attribute(tag, "x") + attribute(tag, "width"), width);
        EXPECT_LE(attribute(tag, "y") + attribute(tag, "height"), height);
      }
    }
  }
}

TEST(TimelineSvg, a_wait_that_ended_before_the_step_is_not_drawn) {
  StepComparison step = comparison(gpipe({.ranks = 1, .microbatches = 2}));
  step.measured.rows[0].insert(
      step.measured.rows[0].begin(),
      {{.op = Op::receive_values}, Seconds{-5}, Seconds{-4}});
  EXPECT_TRUE(boxes(timeline_svg(step), "message").empty());
}

TEST(TimelineSvg, without_a_prediction_there_is_only_the_measurement) {
  StepComparison step =
      comparison(one_f_one_b({.ranks = 2, .microbatches = 3}));
  step.predicted.reset();
  const std::string svg = timeline_svg(step);
  EXPECT_EQ(boxes(svg, "action").size(), 2 * (6 + 1));
  EXPECT_EQ(count(svg, ">predicted<"), 0);
  EXPECT_EQ(count(svg, "end of the prediction"), 0);
  EXPECT_EQ(unbalanced(svg), "");
}

TEST(TimelineSvg, says_length_bubble_and_shares) {
  StepComparison step = comparison(gpipe({.ranks = 2, .microbatches = 2}));
  step.predicted = Timeline{
      .rows = step.predicted->rows,
      .length = Seconds{0.008},
      .busy = {Seconds{0.006}, Seconds{0.004}},
  };
  const std::string svg = timeline_svg(step);
  EXPECT_EQ(count(svg, ">8.00 ms, bubble 37.5 %<"), 1);
  EXPECT_EQ(count(svg, ">75%<"), 1);
  EXPECT_EQ(count(svg, ">50%<"), 1);
}

TEST(TimelineSvg, the_legend_names_what_is_drawn_and_nothing_else) {
  StepComparison step = comparison(forward_only({Rank{0}}, 2));
  const std::string quiet = timeline_svg(step);
  EXPECT_EQ(count(quiet, ">forward<"), 1);
  EXPECT_EQ(count(quiet, ">backward<"), 0);
  EXPECT_EQ(count(quiet, ">thin: "), 0);
  const std::string full =
      timeline_svg(comparison(gpipe({.ranks = 2, .microbatches = 2})));
  EXPECT_EQ(count(full, ">backward<"), 1);
  EXPECT_EQ(count(full, ">thin: "), 2);
  EXPECT_EQ(count(full, ">idle<"), 1);
}

TEST(TimelineSvg, collectives_are_thin_marks_below_their_rank) {
  const StepComparison step =
      comparison(mirrored(gpipe({.ranks = 2, .microbatches = 2}), 2));
  const std::string svg = timeline_svg(step);
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_EQ(boxes(svg, "action").size(), 2 * 2 * (4 + 1));
  EXPECT_EQ(boxes(svg, "message").size(), 2 * 4);
  const std::vector<Block> marks = boxes(svg, "collective");
  ASSERT_EQ(marks.size(), 2 * 2 * (2 + 1));  // predicted and measured
  for (const Block& mark : marks) {
    EXPECT_LE(mark.height, 3);
    EXPECT_GT(mark.width, 20);
    for (const Block& block : boxes(svg, "action")) {
      EXPECT_TRUE(mark.y >= block.y + block.height ||
                  mark.y + mark.height <= block.y);
    }
  }
  for (const char* hover : {"<title>G0 of stage 0: ",
                            "<title>G1 of stage 1: ",
                            "<title>A of stage 0: "}) {
    EXPECT_EQ(count(svg, hover), 2) << hover;
  }
  EXPECT_EQ(count(svg, ">thin: sum of gradients<"), 1);
  EXPECT_EQ(count(svg, ">thin: gathering weights<"), 1);
}

// It begins when all else of the rank has ended.
TEST(TimelineSvg, weights_gathered_behind_the_last_update_are_whole) {
  StepComparison step = comparison(gpipe({.ranks = 1, .microbatches = 1}));
  step.predicted.reset();
  step.measured = {
      .rows = {{{{.op = Op::forward}, Seconds{0}, Seconds{1}},
                {{.op = Op::gather_weights}, Seconds{1}, Seconds{2}}}},
      .length = Seconds{1},
      .busy = {Seconds{1}}};
  const std::string svg = timeline_svg(step);
  const std::vector<Block> blocks = boxes(svg, "action");
  const std::vector<Block> marks = boxes(svg, "collective");
  ASSERT_EQ(blocks.size(), 1);
  ASSERT_EQ(marks.size(), 1);
  EXPECT_NEAR(marks[0].x, blocks[0].x + blocks[0].width + 1, 0.03);
  EXPECT_NEAR(marks[0].width, blocks[0].width + 1, 0.03);
  EXPECT_EQ(count(svg, ">1.00 s, bubble 0.0 %<"), 1);
}

TEST(TimelineSvg, ops_of_one_colour_share_a_sample) {
  Schedule clipped = mirrored(gpipe({.ranks = 2, .microbatches = 2}), 1);
  clipped.synchronisation.clips = true;
  const std::string svg = timeline_svg(comparison(clipped));
  EXPECT_EQ(count(svg, ">norm, update<"), 1);
  EXPECT_EQ(count(svg, ">thin: sum of gradients, sum of norms<"), 1);
  EXPECT_EQ(count(svg, ">thin: "), 4);
}

TEST(TimelineSvg, the_stages_of_one_device_have_shades) {
  const Schedule v = parse_schedule(
      "rank 0: 0F0 3F0 3B0 0B0\n"
      "rank 1: 1F0 2F0 2B0 1B0\n");
  const std::string svg = timeline_svg(comparison(v));
  EXPECT_EQ(count(svg, ">stages 0, 3<"), 2);
  EXPECT_EQ(count(svg, ">darker: "), 1);
  EXPECT_EQ(
      count(timeline_svg(comparison(gpipe({.ranks = 2, .microbatches = 2}))),
            ">darker: "),
      0);
}

TEST(TimelineSvg, escapes_and_shortens_names) {
  StepComparison step = comparison(gpipe({.ranks = 2, .microbatches = 1}));
  step.title = "</svg> \"quoted\" & more";
  step.devices = {"<b>", "a device with a very long name"};
  const std::string svg = timeline_svg(step);
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_EQ(count(svg, "</svg>"), 1);
  EXPECT_EQ(count(svg, "&lt;/svg&gt; &quot;quoted&quot; &amp; more"), 2);
  EXPECT_EQ(count(svg, ">&lt;b&gt;<"), 2);
  EXPECT_EQ(count(svg, ">a device with a …<"), 2);
}

TEST(TimelineSvg, the_title_can_be_left_to_the_page) {
  const StepComparison step =
      comparison(gpipe({.ranks = 2, .microbatches = 2}));
  EXPECT_EQ(count(timeline_svg(step), ">mlp, 1f1b<"), 1);
  EXPECT_EQ(count(timeline_svg(step, false), ">mlp, 1f1b<"), 0);
}

TEST(TimelineSvg, empty_rows_and_empty_timelines_are_drawn) {
  StepComparison step = comparison(gpipe({.ranks = 3, .microbatches = 2}));
  step.measured.rows[1].clear();
  step.measured.busy.pop_back();
  const std::string svg = timeline_svg(step);
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_EQ(boxes(svg, "action").size(), 3 * (4 + 1) + 2 * (4 + 1));
  EXPECT_EQ(count(svg, ">cpu:1<"), 2);
  for (const StepComparison& none :
       {StepComparison{}, StepComparison{.predicted = Timeline{}}}) {
    EXPECT_EQ(unbalanced(timeline_svg(none)), "");
    EXPECT_EQ(count(timeline_svg(none), "nan"), 0);
  }
}

}  // namespace
}  // namespace cleave
