#include "cleave/report/draw_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>
#include <vector>

#include "cleave/report/paint.h"
#include "cleave/report/text.h"
#include "cleave/schedule/generators/registry.h"
#include "tests/report/markup.h"
#include "tests/report/measured_step.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

Timeline timeline(const Schedule& schedule, StageCost cost) {
  return simulate(schedule, {std::vector<StageCost>(schedule.stages(), cost)});
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

constexpr StageCost kSplit{.forward = Seconds{1e-3},
                           .backward = Seconds{1e-3},
                           .weight = Seconds{1e-3}};

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
  const Timeline drawn =
      simulate(parse_schedule("rank 0: F0 B0\n"
                              "rank 1: F0 B0\n"),
               {std::vector<StageCost>(
                   2, {.forward = one, .backward = one, .update = one})});
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

constexpr StageCost kWide{.forward = Seconds{1e-3},
                          .backward = Seconds{1e-3},
                          .weight = Seconds{1e-3},
                          .reduce = Seconds{1e-3}};

TEST(DrawSvg, keeps_every_block_inside_the_image) {
  for (const Schedule& schedule : {one_f_one_b({1, 1, 50}),
                                   one_f_one_b({4, 1, 50}),
                                   one_f_one_b({40, 1, 50}),
                                   zb_v({4, 2, 20}),
                                   mirrored(one_f_one_b({4, 1, 8}), 3),
                                   mirrored(zb_v({40, 2, 90}), 1)}) {
    const std::string svg = draw_svg(timeline(schedule, kWide), "wide");
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

TEST(DrawSvg, messages_are_thin_marks_below_and_no_text) {
  const Timeline quiet =
      timeline(gpipe({.ranks = 1, .microbatches = 2}), kCost);
  Timeline busy = quiet;
  busy.rows[0].insert(
      busy.rows[0].begin() + 1,
      {{.op = Op::send_values}, Seconds{1e-3}, Seconds{1.1e-3}});
  const std::string svg = draw_svg(busy, "t");
  EXPECT_EQ(count(svg, "<g class=\"action\">"), 4);
  EXPECT_EQ(count(svg, "<g class=\"message\"><title>SF0 of stage 0: "), 1);
  EXPECT_EQ(count(svg, ">thin: sends one<"), 1);
  EXPECT_EQ(count(draw_svg(quiet, "t"), "message"), 0);
  EXPECT_EQ(draw_text(busy, 60), draw_text(quiet, 60));
}

constexpr StageCost kMirroredCost{.forward = Seconds{1e-3},
                                  .backward = Seconds{2e-3},
                                  .update = Seconds{1e-3},
                                  .reduce = Seconds{1.5e-3}};

TEST(DrawText, what_mirrors_do_together_has_a_line_of_its_own) {
  const Timeline drawn = timeline(
      mirrored(gpipe({.ranks = 2, .microbatches = 2}), 2), kMirroredCost);
  EXPECT_EQ("\n" + draw_text(drawn, 80), R"(
stage 0  F0──F1──············B0══════B1══════············U━━━······
                                             G0╌╌╌╌G1╌╌╌╌    A╌╌╌╌╌
stage 1  ····F0──F1──B0══════B1══════············U━━━··············
                                     G0╌╌╌╌G1╌╌╌╌    A╌╌╌╌╌
         0                                                  14.5 ms
         F forward, B backward, G sum of gradients, U update, A gathering weights, · idle; bubble 46.2 %
)");
}

TEST(DrawText, short_sums_show_at_least_their_letter_where_there_is_room) {
  StageCost cost = kMirroredCost;
  cost.reduce = Seconds{1e-6};
  const Timeline drawn =
      timeline(mirrored(gpipe({.ranks = 1, .microbatches = 2}), 3), cost);
  EXPECT_EQ("\n" + draw_text(drawn, 24), R"(
stage 0  F0F1B0══B1══U━
                     GA
         0      7.00 ms
         F forward, B backward, G sum of gradients, U update, A gathering weights, · idle; bubble 0.0 %
)");
}

TEST(DrawText, never_draws_sums_wider_than_asked) {
  for (const double reduce : {0.0, 1e-6, 1e-4, 5e-3}) {
    StageCost cost = kMirroredCost;
    cost.reduce = Seconds{reduce};
    for (const int microbatches : {1, 3, 40}) {
      const Timeline drawn = timeline(
          mirrored(one_f_one_b({.ranks = 3, .microbatches = microbatches}), 4),
          cost);
      for (const int width : {10, 40, 80}) {
        const std::string text = draw_text(drawn, width);
        std::istringstream lines(text.substr(0, text.find("         0 ")));
        int count_of_lines = 0;
        for (std::string line; std::getline(lines, line); ++count_of_lines) {
          EXPECT_LE(columns(line), width) << line;
        }
        EXPECT_EQ(count_of_lines, reduce > 0 ? 6 : 3);
      }
    }
  }
}

TEST(DrawText, sums_of_several_stages_name_them) {
  const Timeline drawn = timeline(mirrored(zb_v({2, 2, 2}), 1), kMirroredCost);
  const std::string text = draw_text(drawn, 100);
  for (const char* sum : {" 0G0╌", "3G0╌", "1G0╌", "2G0╌", "0A╌", "3A╌"}) {
    EXPECT_EQ(count(text, sum), 1) << sum << " in\n" << text;
  }
}

// The classes of the groups in the drawing whose hover text begins so.
std::set<std::string> classes_of(const std::string& svg,
                                 const std::string& hover) {
  std::set<std::string> found;
  const std::string start = "\"><title>" + hover;
  for (std::size_t at = svg.find(start); at != std::string::npos;
       at = svg.find(start, at + 1)) {
    const std::size_t open = svg.rfind('"', at - 1);
    found.insert(svg.substr(open + 1, at - open - 1));
  }
  return found;
}

TEST(DrawSvg, collectives_are_thin_marks_in_colours_of_their_own) {
  const std::string svg =
      draw_svg(timeline(mirrored(gpipe({.ranks = 2, .microbatches = 2}), 2),
                        kMirroredCost),
               "mirrored");
  EXPECT_EQ(count(svg, "<g class=\"action\">"), 2 * (4 + 1));
  EXPECT_EQ(count(svg, "<g class=\"collective\">"), 2 * (2 + 1));
  EXPECT_EQ(classes_of(svg, "G1 of stage 0"),
            std::set<std::string>{"collective"});
  EXPECT_EQ(classes_of(svg, "A of stage 1"),
            std::set<std::string>{"collective"});
  EXPECT_EQ(classes_of(svg, "U of stage 1"), std::set<std::string>{"action"});
  EXPECT_EQ(count(svg, "fill=\"" + to_text(paint_of(Op::reduce).first) + "\""),
            4 + 1);  // and in the legend
  EXPECT_EQ(
      count(svg,
            "fill=\"" + to_text(paint_of(Op::gather_weights).first) + "\""),
      2 + 1);
  EXPECT_EQ(count(svg, ">thin: sum of gradients<"), 1);
  EXPECT_EQ(count(svg, ">thin: gathering weights<"), 1);
  EXPECT_EQ(unbalanced(svg), "");
}

TEST(DrawSvg, updates_have_their_letter_and_microbatches_their_number) {
  const std::string svg =
      draw_svg(timeline(mirrored(gpipe({.ranks = 1, .microbatches = 2}), 1),
                        kMirroredCost),
               "labels");
  EXPECT_EQ(count(svg, ">U</text></g>"), 1);
  EXPECT_EQ(count(svg, ">0</text></g>"), 2);
  EXPECT_EQ(count(svg, ">1</text></g>"), 2);
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
