#include "cleave/report/draw_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>
#include <vector>

#include "cleave/report/text.h"
#include "cleave/schedule/passes.h"
#include "cleave/schedule/registry.h"
#include "tests/report/markup.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

Timeline timeline(const Schedule& schedule, StageCost cost) {
  const std::size_t cuts = schedule.stages - 1;
  return simulate(with_messages(schedule),
                  {std::vector<StageCost>(schedule.stages, cost),
                   std::vector<Seconds>(cuts),
                   std::vector<Seconds>(cuts)});
}

constexpr StageCost kCost{Seconds{1e-3}, Seconds{2e-3}};

TEST(DrawText, draws_every_action_as_wide_as_it_is_long) {
  EXPECT_EQ(
      draw_text(timeline(one_f_one_b({.ranks = 4, .microbatches = 6}), kCost),
                80),
      "stage 0  F0F1F2F3············B0══F4B1══F5B2══··B3══··B4══··B5══\n"
      "stage 1  ··F0F1F2········B0══F3B1══F4B2══F5B3══··B4══··B5══····\n"
      "stage 2  ····F0F1····B0══F2B1══F3B2══F4B3══F5B4══··B5══········\n"
      "stage 3  ······F0B0══F1B1══F2B2══F3B3══F4B4══F5B5══············\n"
      "         0                                              27.0 ms\n"
      "         F forward, B backward, · idle; bubble 33.3 %\n");
}

TEST(DrawText, uses_the_room_it_has) {
  const Timeline two = timeline(gpipe({.ranks = 2, .microbatches = 2}), kCost);
  EXPECT_EQ(draw_text(two, 60),
            "stage 0  F0───F1───···············B0════════B1════════\n"
            "stage 1  ·····F0───F1───B0════════B1════════··········\n"
            "         0                                     9.00 ms\n"
            "         F forward, B backward, · idle; bubble 33.3 %\n");
}

TEST(DrawText, shows_only_the_letter_where_the_label_does_not_fit) {
  EXPECT_EQ(
      draw_text(timeline(gpipe({.ranks = 2, .microbatches = 2}), kCost), 18),
      "stage 0  FF···B0B1\n"
      "stage 1  ·FFB0B1··\n"
      "         0 9.00 ms\n"
      "         F forward, B backward, · idle; bubble 33.3 %\n");
}

TEST(DrawText, shows_what_fills_a_column_where_actions_are_shorter_than_one) {
  EXPECT_EQ(
      draw_text(timeline(one_f_one_b({.ranks = 2, .microbatches = 24}), kCost),
                34),
      "stage 0  FB▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒B\n"
      "stage 1  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒·\n"
      "         0                 75.0 ms\n"
      "         F forward, B backward, ▒ both, · idle; bubble 4.0 %\n");
}

TEST(DrawText, never_draws_a_rank_wider_than_asked) {
  for (const ScheduleKind& kind : kSchedules) {
    for (const int microbatches : {1, 3, 10, 40, 300}) {
      const Timeline drawn =
          timeline(kind.make(shapes_of(kind, 5, microbatches).back()), kCost);
      for (const int width : {10, 40, 80, 81, 132}) {
        std::istringstream lines(draw_text(drawn, width));
        std::string line;
        std::set<int> widths;
        for (int rank = 0; rank < 5 && std::getline(lines, line); ++rank) {
          EXPECT_LE(columns(line), width) << line;
          widths.insert(columns(line));
        }
        EXPECT_EQ(widths.size(), 1);
      }
    }
  }
}

TEST(DrawText, a_rank_with_several_stages_names_them) {
  const Schedule v = parse_schedule(
      "rank 0: 0F0 3F0 3B0 0B0\n"
      "rank 1: 1F0 2F0 2B0 1B0\n");
  EXPECT_EQ(draw_text(timeline(v, {Seconds{1}, Seconds{1}}), 40),
            "rank 0  0F0─········3F0─3B0═········0B0═\n"
            "rank 1  ····1F0─2F0─········2B0═1B0═····\n"
            "        0                         8.00 s\n"
            "        F forward, B backward, · idle; bubble 50.0 %\n");
}

constexpr StageCost kSplit{Seconds{1e-3}, Seconds{1e-3}, Seconds{1e-3}};

TEST(DrawText, weight_gradients_have_a_letter_of_their_own) {
  EXPECT_EQ(
      draw_text(timeline(zb_h1({.ranks = 2, .microbatches = 3}), kSplit), 72),
      "stage 0  F0────F1────······B0════W0┄┄┄┄F2────B1════W1┄┄┄┄B2════W2┄┄┄┄\n"
      "stage 1  ······F0────B0════F1────B1════W0┄┄┄┄F2────B2════W1┄┄┄┄W2┄┄┄┄\n"
      "         0                                                    10.0 ms\n"
      "         F forward, B backward, W weight gradients, · idle; bubble 10.0 "
      "%\n");
  EXPECT_NE(
      draw_text(timeline(zb_h1({.ranks = 2, .microbatches = 40}), kSplit), 40)
          .find("W weight gradients, ▒ several, · idle"),
      std::string::npos);
}

TEST(DrawText, updates_stand_behind_the_rows) {
  const Seconds one{1};
  const Timeline drawn = simulate(parse_schedule("rank 0: F0 B0\n"
                                                 "rank 1: F0 B0\n"),
                                  {.stages = {{one, one}, {one, one}},
                                   .forward_message = {{}},
                                   .backward_message = {{}},
                                   .updates = {one, one}});
  EXPECT_EQ(
      draw_text(drawn, 29),
      "stage 0  F0──········B0══U━━━\n"
      "stage 1  ····F0──B0══U━━━····\n"
      "         0             5.00 s\n"
      "         F forward, B backward, U update, · idle; bubble 40.0 %\n");
  const std::string svg = draw_svg(drawn, "updates");
  EXPECT_EQ(count(svg, "<title>U of stage 1: starts at 3.00 s"), 1);
}

TEST(DrawText, a_timeline_of_no_length_is_drawn_without_actions) {
  EXPECT_EQ(draw_text(timeline(gpipe({.ranks = 1, .microbatches = 2}), {}), 40),
            "stage 0  \n"
            "         0 0 s\n"
            "         F forward, B backward, · idle; bubble 0.0 %\n");
}

TEST(DrawSvg, has_one_block_with_hover_text_per_compute_action) {
  const std::string svg = draw_svg(
      timeline(one_f_one_b({.ranks = 4, .microbatches = 6}), kCost), "1f1b");
  EXPECT_EQ(count(svg, "<g class=\"action\"><title>"), 4 * 6 * 2);
  EXPECT_EQ(count(svg, "<title>"), 4 * 6 * 2);
  EXPECT_EQ(count(svg,
                  "<title>B0 of stage 3: starts at 4.00 ms, takes 2.00 "
                  "ms</title><rect"),
            1);
}

TEST(DrawSvg, keeps_every_block_inside_the_image) {
  for (const Schedule& schedule : {one_f_one_b({1, 1, 50}),
                                   one_f_one_b({4, 1, 50}),
                                   one_f_one_b({40, 1, 50}),
                                   zb_v({4, 2, 20})}) {
    const std::string svg = draw_svg(timeline(schedule, kSplit), "wide");
    const std::vector<std::string> all = tags(svg);
    const double width = attribute(all[0], "width");
    const double height = attribute(all[0], "height");
    EXPECT_EQ(count(all[0],
                    " viewBox=\"0 0 " + decimal(width, 0) + " " +
                        decimal(height, 0) + "\""),
              1);
    for (const std::string& tag : all) {
      if (!tag.starts_with("rect ")) {
        continue;
      }
      EXPECT_GE(attribute(tag, "x"), 0);
      EXPECT_GE(attribute(tag, "y"), 0);
      EXPECT_GT(attribute(tag, "width"), 0);
      EXPECT_GT(attribute(tag, "height"), 0);
      EXPECT_LE(attribute(tag, "x") + attribute(tag, "width"), width);
      EXPECT_LE(attribute(tag, "y") + attribute(tag, "height"), height);
    }
  }
}

TEST(DrawSvg, closes_every_tag_it_opens) {
  EXPECT_EQ(
      unbalanced(draw_svg(
          timeline(gpipe({.ranks = 3, .microbatches = 4}), kCost), "gpipe")),
      "");
}

TEST(DrawSvg, weight_gradients_have_a_colour_of_their_own) {
  const std::string svg =
      draw_svg(timeline(zb_h1({.ranks = 2, .microbatches = 3}), kSplit), "zb");
  EXPECT_EQ(count(svg, "<title>W"), 6);
  EXPECT_EQ(count(svg, "fill=\"#94451f\""), 6 + 1);  // and in the legend
  EXPECT_EQ(count(svg, ">weight gradients<"), 1);
}

TEST(DrawSvg, the_stages_of_a_rank_have_shades_of_their_own) {
  const std::string svg = draw_svg(timeline(zb_v({2, 2, 1}), kSplit), "zb-v");
  std::set<std::string> fills;
  const std::vector<std::string> all = tags(svg);
  for (std::size_t i = 0; i + 3 < all.size(); ++i) {
    if (all[i].starts_with("g class=\"action\"")) {  // title, /title, block
      const std::size_t fill = all[i + 3].find("fill=\"");
      fills.insert(all[i + 3].substr(fill, 14));
    }
  }
  EXPECT_EQ(fills.size(), 6);  // F, B and W, of two stages each
}

TEST(DrawSvg, escapes_the_title) {
  const std::string svg =
      draw_svg(timeline(gpipe({.ranks = 1, .microbatches = 1}), kCost),
               "a < b & \"c\" <script>");
  EXPECT_EQ(count(svg, "a &lt; b &amp; &quot;c&quot; &lt;script&gt;"), 2);
  EXPECT_EQ(count(svg, "<script"), 0);
}

TEST(DrawSvg, names_the_stages_the_unit_and_the_bubble) {
  const std::string svg = draw_svg(
      timeline(gpipe({.ranks = 2, .microbatches = 2}), kCost), "gpipe");
  for (const std::string words : {">stage 0<",
                                  ">stage 1<",
                                  ">time in ms<",
                                  ">bubble 33.3 %: ",
                                  ">forward<",
                                  ">backward<",
                                  ">idle<"}) {
    EXPECT_EQ(count(svg, words), 1) << words;
  }
}

TEST(DrawSvg, shades_the_stages_of_one_device) {
  const Schedule v = parse_schedule(
      "rank 0: 0F0 3F0 3B0 0B0\n"
      "rank 1: 1F0 2F0 2B0 1B0\n");
  const std::string svg = draw_svg(timeline(v, {Seconds{1}, Seconds{1}}), "v");
  std::set<std::string> fills;
  for (const std::string& tag : tags(svg)) {
    if (tag.starts_with("rect ") && tag.find("rx=") != std::string::npos) {
      fills.insert(tag.substr(tag.find("fill=")));
    }
  }
  // Two kinds in two shades, and the sample of idle time.
  EXPECT_EQ(fills.size(), 5);
}

TEST(DrawSvg, writes_the_microbatch_only_where_it_fits) {
  const auto written = [](int microbatches) {
    const std::string svg = draw_svg(
        timeline(gpipe({.ranks = 1, .microbatches = microbatches}), kCost), "");
    return count(svg, "</text></g>");
  };
  EXPECT_EQ(written(4), 8);
  EXPECT_EQ(written(1000), 0);
}

TEST(DrawSvg, messages_are_not_drawn) {
  const Timeline quiet =
      timeline(gpipe({.ranks = 1, .microbatches = 2}), kCost);
  Timeline busy = quiet;
  const Action send{Op::send_forward, Microbatch{0}, StageId{0}};
  busy.rows[0].insert(busy.rows[0].begin() + 1,
                      {send, Seconds{1e-3}, Seconds{1.1e-3}});
  EXPECT_EQ(draw_svg(busy, "t"), draw_svg(quiet, "t"));
  EXPECT_EQ(draw_text(busy, 60), draw_text(quiet, 60));
}

TEST(DrawSvg, a_timeline_that_starts_late_looks_like_one_that_starts_at_zero) {
  const Timeline at_zero = timeline(gpipe({.ranks = 2, .microbatches = 2}),
                                    {Seconds{1}, Seconds{2}});
  Timeline late = at_zero;
  for (auto& row : late.rows) {
    for (Span& span : row) {
      span.start += Seconds{64};
      span.end += Seconds{64};
    }
  }
  EXPECT_EQ(draw_svg(late, "t"), draw_svg(at_zero, "t"));
  EXPECT_EQ(draw_text(late, 60), draw_text(at_zero, 60));
}

}  // namespace
}  // namespace cleave
