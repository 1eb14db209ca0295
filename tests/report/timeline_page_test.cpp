#include "cleave/report/timeline_page.h"

#include <gtest/gtest.h>

#include "cleave/schedule/generators/registry.h"
#include "tests/report/markup.h"
#include "tests/report/measured_step.h"

namespace cleave {
namespace {

// Two devices: 10 ms predicted, 12.5 ms measured.
StepComparison simple() {
  const Timeline rows = measured_step(
      gpipe({.ranks = 2, .microbatches = 2}), {Seconds{1}, Seconds{2}}, 0);
  StepComparison step{.title = "mlp, gpipe, step 3",
                      .predicted = rows,
                      .measured = rows,
                      .devices = {"cpu:0", "cpu:1"}};
  step.predicted->length = Seconds{0.010};
  step.predicted->busy = {Seconds{0.006}, Seconds{0.008}};
  step.measured.length = Seconds{0.0125};
  step.measured.busy = {Seconds{0.0075}, Seconds{0.005}};
  return step;
}

std::string shown(const std::string& name, const std::string& value) {
  return "<dt>" + name + "</dt><dd>" + value + "</dd>";
}

TEST(TimelinePage, the_figures_are_those_of_the_timelines) {
  const std::string page = timeline_page(simple());
  for (const std::string& figure : {shown("predicted step", "10.0 ms"),
                                    shown("measured step", "12.5 ms"),
                                    shown("measured ÷ predicted", "1.25"),
                                    shown("predicted bubble", "30.0 %"),
                                    shown("measured bubble", "50.0 %")}) {
    EXPECT_EQ(count(page, figure), 1) << figure;
  }
}

TEST(TimelinePage, the_table_tells_how_busy_every_device_is) {
  const std::string page = timeline_page(simple());
  EXPECT_EQ(count(page,
                  "<tr><td>cpu:0</td><td>0</td><td>60% (6.00 ms)</td>"
                  "<td>60% (7.50 ms)</td></tr>"),
            1);
  EXPECT_EQ(count(page,
                  "<tr><td>cpu:1</td><td>1</td><td>80% (8.00 ms)</td>"
                  "<td>40% (5.00 ms)</td></tr>"),
            1);
}

TEST(TimelinePage, is_well_formed_and_has_title_picture_and_table_in_order) {
  const std::string page = timeline_page(simple());
  EXPECT_EQ(unbalanced(page), "");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>\n"));
  EXPECT_EQ(count(page, "<title>mlp, gpipe, step 3</title>"), 1);
  const std::size_t heading = page.find("<h1>mlp, gpipe, step 3</h1>");
  const std::size_t picture = page.find("<svg ");
  const std::size_t table = page.find("<table>");
  EXPECT_LT(heading, picture);
  EXPECT_LT(picture, table);
  EXPECT_LT(table, page.size());
}

TEST(TimelinePage, needs_nothing_from_outside) {
  const std::string page = timeline_page(simple());
  EXPECT_EQ(count(page, "http"), 1) << "the name of the SVG namespace";
  for (const char* outside : {"<script", "<link", "src=", "href=", "url("}) {
    EXPECT_EQ(count(page, outside), 0) << outside;
  }
}

TEST(TimelinePage, names_cannot_break_out) {
  StepComparison step = simple();
  step.title = "</title><script>alert(\"1\")</script>";
  step.devices = {"</td>'\"", "</script>"};
  const std::string page = timeline_page(step);
  EXPECT_EQ(unbalanced(page), "");
  EXPECT_EQ(count(page, "script>"), 0);
  EXPECT_EQ(count(page, "<td>&lt;/td&gt;'&quot;</td>"), 1);
  EXPECT_EQ(count(page, "<td>&lt;/script&gt;</td>"), 1);
}

TEST(TimelinePage, without_a_prediction_it_shows_the_measurement) {
  StepComparison step = simple();
  step.predicted.reset();
  const std::string page = timeline_page(step);
  EXPECT_EQ(unbalanced(page), "");
  EXPECT_EQ(count(page, "predicted"), 0);
  EXPECT_EQ(count(page, shown("measured step", "12.5 ms")), 1);
  EXPECT_EQ(count(page, "<td>cpu:1</td><td>1</td><td>40% (5.00 ms)</td>"), 1);
}

TEST(TimelinePage, nothing_measured_is_still_a_page) {
  StepComparison step;
  step.predicted = Timeline{};
  const std::string page = timeline_page(step);
  EXPECT_EQ(unbalanced(page), "");
  EXPECT_EQ(count(page, "÷"), 0);
  EXPECT_EQ(count(page, "nan"), 0);
  EXPECT_EQ(count(page, "inf"), 0);
}

TEST(TimelinePage, a_rank_without_spans_has_a_row_without_stages) {
  StepComparison step = simple();
  step.measured.rows[1].clear();
  step.measured.busy.pop_back();
  const std::string page = timeline_page(step);
  EXPECT_EQ(unbalanced(page), "");
  EXPECT_EQ(count(page,
                  "<tr><td>cpu:1</td><td></td><td>80% (8.00 ms)</td>"
                  "<td>–</td></tr>"),
            1);
}

TEST(TimelinePage, a_rank_that_was_only_predicted_is_in_the_table) {
  StepComparison step = simple();
  step.measured.rows.pop_back();
  step.measured.busy.pop_back();
  EXPECT_EQ(count(timeline_page(step),
                  "<tr><td>cpu:1</td><td>1</td><td>80% (8.00 ms)</td>"
                  "<td>–</td></tr>"),
            1);
}

}  // namespace
}  // namespace cleave
