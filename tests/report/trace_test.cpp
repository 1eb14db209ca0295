#include "cleave/report/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/order.h"
#include "tests/report/measured_step.h"
#include "tests/schedule/shapes.h"

namespace cleave {
namespace {

using nlohmann::json;

constexpr StageCost kTracedCost{.forward = Seconds{1e-3},
                                .backward = Seconds{2e-3},
                                .weight = Seconds{1e-3},
                                .update = Seconds{0.5e-3},
                                .reduce = Seconds{1.5e-3}};
const std::vector<std::string> kDevices{"cpu:0", "cpu:1", "cpu:2", "cpu:3"};

std::vector<json> events(const std::string& trace) {
  return json::parse(trace).at("traceEvents");
}

std::vector<json> with_phase(const std::string& trace, const char* phases) {
  std::vector<json> found;
  for (const json& event : events(trace)) {
    const std::string phase = event.at("ph");
    if (std::string_view(phases).find(phase) != std::string_view::npos) {
      found.push_back(event);
    }
  }
  return found;
}

std::map<int, std::string> lane_names(const std::string& trace) {
  std::map<int, std::string> names;
  for (const json& event : with_phase(trace, "M")) {
    if (event.at("name") == "thread_name") {
      names[event.at("tid")] = event.at("args").at("name");
    }
  }
  return names;
}

// As a viewer counts: what is less than a nanosecond is cut off.
std::int64_t nanoseconds(const json& microseconds) {
  return static_cast<std::int64_t>(microseconds.get<double>() * 1000.0);
}

StepTrace step_of(std::int64_t number, const Schedule& schedule, Seconds zero) {
  return {number, measured_step(schedule, kTracedCost), zero};
}

Timeline shifted(Timeline timeline, Seconds by) {
  for (auto& row : timeline.rows) {
    for (Span& span : row) {
      span.start += by;
      span.end += by;
    }
  }
  return timeline;
}

// The index goes by what it counts.
void expect_index(const json& args, const Action& action) {
  const IndexOf index = traits(action.op).index;
  EXPECT_EQ(args.contains("microbatch"), index == IndexOf::microbatch);
  EXPECT_EQ(args.contains("bucket"), index == IndexOf::bucket);
  if (index != IndexOf::nothing) {
    EXPECT_EQ(args.at(index == IndexOf::bucket ? "bucket" : "microbatch"),
              action.index);
  }
}

TEST(Trace, every_span_is_a_slice_on_its_lane_right_to_a_nanosecond) {
  const StepTrace step =
      step_of(7, mirrored(one_f_one_b({.ranks = 4, .microbatches = 6}), 2), {});
  const std::string trace = trace_json({step}, kDevices);
  std::map<std::tuple<std::string, std::string, int>, json> slices;
  int count_of_slices = 0;
  for (const json& event : with_phase(trace, "X")) {
    if (event.at("cat") != "step") {
      slices[{lane_names(trace)[event.at("tid")],
              event.at("name"),
              event.at("args").at("stage")}] = event;
      ++count_of_slices;
    }
  }
  int spans = 0;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (const Span& span : step.measured.rows[rank]) {
      const OpTraits& kind = traits(span.action.op);
      const std::string lane = kDevices[rank] + (is_compute(kind.op) ? ""
                                                 : kind.other_end ? " messages"
                                                                  : " sums");
      const json& event =
          slices.at({lane, to_text(span.action), span.action.stage.value});
      EXPECT_NEAR(
          event.at("ts").get<double>() * 1e3, span.start.value * 1e9, 1);
      EXPECT_NEAR(event.at("dur").get<double>() * 1e3,
                  (span.end - span.start).value * 1e9,
                  1);
      expect_index(event.at("args"), span.action);
      EXPECT_EQ(event.at("args").at("step"), 7);
      ++spans;
    }
  }
  EXPECT_EQ(count_of_slices, spans);
  EXPECT_EQ(spans, 4 * 12 + 3 * 6 * 4 + 4 * (2 + 1 + 1));  // G, U and A
}

TEST(Trace, slices_say_what_they_are_in_words) {
  const std::string trace = trace_json(
      {step_of(1, mirrored(gpipe({.ranks = 2, .microbatches = 1}), 1), {})},
      {"cpu:0", "cpu:1"});
  std::map<std::string, std::string> kinds;
  std::map<std::string, std::string> categories;
  for (const json& event : with_phase(trace, "X")) {
    if (event.at("cat") != "step") {
      kinds[event.at("name")] = event.at("args").at("kind");
      categories[event.at("name")] = event.at("cat");
    }
  }
  EXPECT_EQ(kinds,
            (std::map<std::string, std::string>{{"F0", "forward"},
                                                {"B0", "backward"},
                                                {"U", "update"},
                                                {"SF0", "sending values"},
                                                {"RF0", "receiving values"},
                                                {"SB0", "sending gradients"},
                                                {"RB0", "receiving gradients"},
                                                {"G0", "sum of gradients"},
                                                {"A", "gathering weights"}}));
  EXPECT_EQ(categories,
            (std::map<std::string, std::string>{{"F0", "compute"},
                                                {"B0", "compute"},
                                                {"U", "compute"},
                                                {"SF0", "message"},
                                                {"RF0", "message"},
                                                {"SB0", "message"},
                                                {"RB0", "message"},
                                                {"G0", "sum"},
                                                {"A", "sum"}}));
}

// Where a message is sent while gradients are summed, one lane for both would
// make viewers drop slices.
TEST(Trace, sums_have_a_lane_beside_the_messages_that_they_overlap) {
  Timeline step{
      .rows = {
          {{{.op = Op::backward, .stage = {1}}, Seconds{0}, Seconds{2}},
           {{.op = Op::reduce, .stage = {1}, .index = 0},
            Seconds{2},
            Seconds{5}},
           {{.op = Op::send_gradients, .stage = {1}}, Seconds{3}, Seconds{4}},
           {{.op = Op::reduce_norm, .stage = {1}}, Seconds{5}, Seconds{6}},
           {{.op = Op::share_buffers, .stage = {1}}, Seconds{6}, Seconds{7}}}}};
  const std::string trace = trace_json({{1, step, {}}}, {"cpu:0"});
  std::map<int, std::string> lanes = lane_names(trace);
  std::map<std::string, std::string> found;
  for (const json& event : with_phase(trace, "X")) {
    found[event.at("name")] = lanes[event.at("tid")];
  }
  EXPECT_EQ(found,
            (std::map<std::string, std::string>{{"step 1", "steps"},
                                                {"B0", "cpu:0"},
                                                {"G0", "cpu:0 sums"},
                                                {"SB0", "cpu:0 messages"},
                                                {"M", "cpu:0 sums"},
                                                {"C", "cpu:0 sums"}}));
}

TEST(Trace, names_every_lane_in_the_order_of_the_devices) {
  const std::string trace =
      trace_json({step_of(1, gpipe({.ranks = 3, .microbatches = 2}), {})},
                 {"cpu:0", "cuda:1"});
  std::vector<std::string> names;
  for (const auto& [lane, name] : lane_names(trace)) {
    names.push_back(name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"steps",
                                      "cpu:0",
                                      "cpu:0 messages",
                                      "cpu:0 sums",
                                      "cuda:1",
                                      "cuda:1 messages",
                                      "cuda:1 sums",
                                      "rank 2",
                                      "rank 2 messages",
                                      "rank 2 sums"}));
  int sorted = 0;
  for (const json& event : with_phase(trace, "M")) {
    if (event.at("name") == "thread_sort_index") {
      EXPECT_EQ(event.at("args").at("sort_index"), event.at("tid"));
      ++sorted;
    }
  }
  EXPECT_EQ(sorted, 10);
}

// Plays a viewer: sorts by time, keeps equal times in order, and ties every
// arrow to the slice it saw last on the lane. Gives, per flow, the names of the
// slices it leads through, with their stages: "F0@0 SF0@0 RF0@1".
std::map<int, std::string> followed(const std::string& trace) {
  std::vector<json> all = with_phase(trace, "Xstf");
  std::stable_sort(all.begin(), all.end(), [](const json& a, const json& b) {
    return nanoseconds(a.at("ts")) < nanoseconds(b.at("ts"));
  });
  std::map<int, json> open;  // of every lane
  std::map<int, std::string> ways;
  std::set<int> ended;
  for (const json& event : all) {
    json& slice = open[event.at("tid")];
    if (event.at("ph") == "X") {
      slice = event;
      continue;
    }
    const std::int64_t at = nanoseconds(event.at("ts"));
    const std::int64_t start = nanoseconds(slice.at("ts"));
    EXPECT_LE(start, at);
    EXPECT_GE(start + nanoseconds(slice.at("dur")) + 1, at);
    EXPECT_EQ(event.at("bp"), "e");
    const int id = event.at("id");
    EXPECT_EQ(event.at("ph") == "s", !ways.contains(id)) << event;
    EXPECT_FALSE(ended.contains(id)) << event;
    if (event.at("ph") == "f") {
      ended.insert(id);
    }
    ways[id] += (ways[id].empty() ? "" : " ") +
                slice.at("name").get<std::string>() + "@" +
                std::to_string(slice.at("args").at("stage").get<int>());
  }
  EXPECT_EQ(ended.size(), ways.size()) << "a flow starts and never ends";
  return ways;
}

TEST(Trace, arrows_follow_each_microbatch_through_the_stages_and_back) {
  const std::string trace = trace_json(
      {step_of(1, one_f_one_b({.ranks = 3, .microbatches = 2}), {})}, kDevices);
  std::set<std::string> ways;
  for (const auto& [id, way] : followed(trace)) {
    ways.insert(way);
  }
  EXPECT_EQ(ways,
            (std::set<std::string>{
                "F0@0 SF0@0 RF0@1 F0@1 SF0@1 RF0@2 F0@2 B0@2 SB0@2 RB0@1 B0@1 "
                "SB0@1 RB0@0 B0@0",
                "F1@0 SF1@0 RF1@1 F1@1 SF1@1 RF1@2 F1@2 B1@2 SB1@2 RB1@1 B1@1 "
                "SB1@1 RB1@0 B1@0"}));
}

// Their indices count other things than microbatches.
TEST(Trace, arrows_are_those_of_microbatches_alone) {
  const Schedule passes = one_f_one_b({.ranks = 3, .microbatches = 2});
  Schedule clipped = mirrored(passes, 5);
  clipped.synchronisation.clips = true;
  clipped.graph = StageGraph(3, {{StageId{0}, StageId{2}}});
  const std::string trace = trace_json({step_of(1, clipped, {})}, kDevices);
  EXPECT_EQ(followed(trace),
            followed(trace_json({step_of(1, passes, {})}, kDevices)));
}

TEST(Trace, every_schedule_and_every_step_has_whole_flows) {
  for (const ScheduleKind& kind : kSchedules) {
    const Schedule schedule = kind.make(shapes_of(kind, 4, 7).front());
    const std::string trace = trace_json({step_of(1, schedule, {}),
                                          step_of(2, schedule, Seconds{0.5}),
                                          step_of(3, schedule, Seconds{1})},
                                         kDevices);
    int crossings = 0;
    const Order order(schedule);
    for (StageId stage; stage.value + 1 < schedule.stages(); ++stage.value) {
      crossings += order.crosses(stage, StageId{stage.value + 1}) ? 1 : 0;
    }
    const auto ways = followed(trace);
    EXPECT_EQ(ways.size(), 3 * 7);
    for (const auto& [id, way] : ways) {
      EXPECT_EQ(std::count(way.begin(), way.end(), '@'),
                schedule.stages() * 2 + crossings * 4);
    }
  }
}

TEST(Trace, arrows_find_slices_of_no_length_at_equal_times) {
  StepTrace step = step_of(1, one_f_one_b({.ranks = 3, .microbatches = 3}), {});
  for (auto& row : step.measured.rows) {
    for (Span& span : row) {
      span.start = span.end = Seconds{5};
    }
  }
  for (const auto& [id, way] : followed(trace_json({step}, kDevices))) {
    const std::string m(1, way[1]);
    EXPECT_TRUE(way.starts_with("F" + m + "@0 SF" + m + "@0 RF" + m + "@1 "))
        << way;
    EXPECT_TRUE(way.ends_with(" RB" + m + "@0 B" + m + "@0")) << way;
  }
}

// A partial overlap makes Perfetto drop the later slice. The times are such
// that decimal fractions of microseconds are often a hair below the true value.
TEST(Trace, neighbours_on_a_lane_do_not_overlap_for_viewers_that_truncate) {
  std::vector<Span> row;
  for (int i = 0; i < 5000; ++i) {
    row.push_back({{.op = Op::forward, .index = i},
                   Seconds{i * 1.00007e-3},
                   Seconds{(i + 1) * 1.00007e-3}});
  }
  const std::string trace =
      trace_json({{1, Timeline{.rows = {row}}, {}}}, {"cpu:0"});
  std::int64_t end = 0;
  int checked = 0;
  for (const json& event : with_phase(trace, "X")) {
    if (event.at("cat") == "compute") {
      const std::int64_t start = nanoseconds(event.at("ts"));
      EXPECT_GE(start, end);
      EXPECT_EQ(start, std::llround(checked * 1.00007e-3 * 1e9));
      end = start + nanoseconds(event.at("dur"));
      ++checked;
    }
  }
  EXPECT_EQ(checked, 5000);
}

TEST(Trace, steps_have_a_lane_and_end_where_the_next_one_starts) {
  const Schedule schedule = one_f_one_b({.ranks = 2, .microbatches = 2});
  const StepTrace first = step_of(41, schedule, Seconds{3});
  const StepTrace second = step_of(42, schedule, Seconds{3.004});
  ASSERT_GT(first.measured.length, Seconds{0.004});
  const std::string trace = trace_json({first, second}, kDevices);
  std::vector<json> steps;
  for (const json& event : with_phase(trace, "X")) {
    if (event.at("cat") == "step") {
      steps.push_back(event);
    }
  }
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(lane_names(trace)[steps[0].at("tid")], "steps");
  EXPECT_EQ(steps[0].at("name"), "step 41");
  EXPECT_NEAR(steps[0].at("ts").get<double>(), 0, 1e-3);
  EXPECT_NEAR(steps[0].at("dur").get<double>(), 4000, 1e-3);
  EXPECT_EQ(steps[1].at("name"), "step 42");
  EXPECT_NEAR(steps[1].at("ts").get<double>(), 4000, 1e-3);
  EXPECT_NEAR(steps[1].at("dur").get<double>(),
              second.measured.length.value * 1e6,
              1e-3);
}

TEST(Trace, one_clock_or_a_zero_per_step_give_the_same_trace) {
  const Timeline timeline =
      measured_step(gpipe({.ranks = 2, .microbatches = 3}), kTracedCost, 0);
  EXPECT_EQ(trace_json({{1, timeline, {}}, {2, timeline, Seconds{0.5}}}, {}),
            trace_json({{1, shifted(timeline, Seconds{64}), {}},
                        {2, shifted(timeline, Seconds{64.5}), {}}},
                       {}));
}

TEST(Trace, a_rank_without_spans_keeps_its_lanes) {
  StepTrace step = step_of(1, gpipe({.ranks = 3, .microbatches = 2}), {});
  step.measured.rows[1].clear();
  const std::string trace = trace_json({step}, kDevices);
  EXPECT_EQ(lane_names(trace).size(), 1 + 3 * 4);
  followed(trace);
}

TEST(Trace, a_microbatch_seen_once_has_no_arrow) {
  const Span only{{.op = Op::forward}, {}, Seconds{1}};
  const std::string trace =
      trace_json({{1, Timeline{.rows = {{only}}}, {}}}, {"cpu:0"});
  EXPECT_TRUE(with_phase(trace, "stf").empty());
  EXPECT_EQ(with_phase(trace, "X").size(), 2);
}

TEST(Trace, nothing_measured_is_still_a_trace) {
  EXPECT_EQ(lane_names(trace_json({}, {})).size(), 1);
  EXPECT_EQ(lane_names(trace_json({{1, {}, {}}}, {"cpu:0"})).size(), 4);
  EXPECT_TRUE(with_phase(trace_json({{1, {}, {}}}, {}), "Xstf").empty());
}

TEST(Trace, names_of_any_bytes_stay_valid_json) {
  const std::string trace =
      trace_json({}, {"a\"b\\", "</script>\n", "broken \xff"});
  const auto names = lane_names(trace);
  EXPECT_EQ(names.at(2), "a\"b\\");
  EXPECT_EQ(names.at(5), "</script>\n");
  EXPECT_EQ(names.at(8), "broken \xEF\xBF\xBD");
}

TEST(Trace, is_the_same_every_time) {
  const std::vector<StepTrace> steps{
      step_of(1, one_f_one_b({.ranks = 4, .microbatches = 6}), {})};
  EXPECT_EQ(trace_json(steps, kDevices), trace_json(steps, kDevices));
}

}  // namespace
}  // namespace cleave
