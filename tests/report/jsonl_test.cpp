#include "cleave/report/jsonl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "cleave/error.h"
#include "cleave/event.h"

namespace cleave {
namespace {

using nlohmann::json;

StepDone step_done() {
  return {.step = 3,
          .epoch = 1,
          .samples = 256,
          .loss = 0.25,
          .learning_rate = 1e-3,
          .gradient_norm = 1.5,
          .duration = {0.0125},
          .bubble = 0.125,
          .peak_memory = {Bytes{100}, Bytes{5LL << 40}}};
}

std::filesystem::path fresh_file(const std::string& name) {
  std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / ("cleave_" + name);
  std::filesystem::remove(file);
  return file;
}

std::vector<json> objects_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<json> objects;
  for (std::string line; std::getline(in, line);) {
    objects.push_back(json::parse(line));
  }
  return objects;
}

TEST(Jsonl, every_field_of_every_event_is_written) {
  EXPECT_EQ(to_json_line(RunStarted{.model = "mnist",
                                    .stages = 2,
                                    .microbatches = 8,
                                    .schedule = "1f1b",
                                    .steps = 700,
                                    .epochs = 3,
                                    .batch = 256,
                                    .predicted_step = Seconds{0.5}}),
            R"({"event":"run_started","model":"mnist","stages":2,"replicas":1,)"
            R"("microbatches":8,"schedule":"1f1b","steps":700,"epochs":3,)"
            R"("batch":256,"predicted_step_seconds":0.5})");
  EXPECT_EQ(to_json_line(step_done()),
            R"({"event":"step_done","step":3,"epoch":1,"samples":256,)"
            R"("loss":0.25,"learning_rate":0.001,"gradient_norm":1.5,)"
            R"("duration_seconds":0.0125,"bubble":0.125,)"
            R"("peak_memory_bytes":[100,5497558138880]})");
  EXPECT_EQ(
      to_json_line(Evaluated{
          .step = 700,
          .data = "test",
          .evaluation = {.loss = 0.5, .accuracy = 0.875, .samples = 10000}}),
      R"({"event":"evaluated","step":700,"data":"test","loss":0.5,)"
      R"("accuracy":0.875,"samples":10000})");
  EXPECT_EQ(to_json_line(RunEnded{.steps = 700,
                                  .interrupted = true,
                                  .duration = {8.5},
                                  .median_step = {0.25},
                                  .median_computing = {0.125},
                                  .predicted_step = Seconds{0.5},
                                  .predicted_computing = Seconds{0.375}}),
            R"({"event":"run_ended","steps":700,"interrupted":true,)"
            R"("duration_seconds":8.5,"median_step_seconds":0.25,)"
            R"("median_computing_seconds":0.125,)"
            R"("predicted_step_seconds":0.5,)"
            R"("predicted_computing_seconds":0.375})");
}

TEST(Jsonl, a_member_without_a_value_is_left_out) {
  EXPECT_FALSE(json::parse(to_json_line(RunStarted{}))
                   .contains("predicted_step_seconds"));
  EXPECT_FALSE(json::parse(to_json_line(StepDone{})).contains("gradient_norm"));
  EXPECT_FALSE(json::parse(to_json_line(Evaluated{})).contains("accuracy"));
}

TEST(Jsonl, numbers_that_are_not_finite_are_words) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  StepDone step = step_done();
  step.loss = std::nan("");
  step.gradient_norm = kInfinity;
  step.bubble = -kInfinity;
  const json object = json::parse(to_json_line(step));
  EXPECT_EQ(object["loss"], "nan");
  EXPECT_EQ(object["gradient_norm"], "inf");
  EXPECT_EQ(object["bubble"], "-inf");
}

TEST(Jsonl, names_cannot_break_the_line) {
  RunStarted run;
  run.model = "two\nlines \"quoted\" \xff";
  const std::string line = to_json_line(run);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(json::parse(line)["model"], "two\nlines \"quoted\" \uFFFD");
}

TEST(Jsonl, a_line_can_be_read_before_the_sink_is_gone) {
  const auto file = fresh_file("follow.jsonl");
  JsonlSink sink(file, JsonlSink::Mode::truncate);
  sink.on(step_done());
  ASSERT_EQ(objects_in(file).size(), 1U);
  sink.on(Evaluated{});
  ASSERT_EQ(objects_in(file).size(), 2U);
  EXPECT_EQ(objects_in(file)[1]["event"], "evaluated");
}

TEST(Jsonl, appending_keeps_what_was_there_and_truncating_does_not) {
  const auto file = fresh_file("modes.jsonl");
  JsonlSink(file, JsonlSink::Mode::truncate).on(step_done());
  JsonlSink(file, JsonlSink::Mode::append).on(step_done());
  EXPECT_EQ(objects_in(file).size(), 2U);
  JsonlSink(file, JsonlSink::Mode::truncate).on(step_done());
  EXPECT_EQ(objects_in(file).size(), 1U);
}

TEST(Jsonl, a_full_disk_is_an_error_that_names_the_file) {
  JsonlSink sink("/dev/full", JsonlSink::Mode::append);
  try {
    sink.on(step_done());
    FAIL() << "the write went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "cannot write to /dev/full: No space left on device");
  }
}

TEST(Jsonl, a_file_that_cannot_be_opened_is_an_error_that_names_it) {
  const auto file = fresh_file("no_such_folder") / "events.jsonl";
  try {
    JsonlSink sink(file, JsonlSink::Mode::truncate);
    FAIL() << "opened " << file;
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "cannot open " + file.string() +
                  " for writing: No such file or directory");
  }
}

TEST(FanOut, every_sink_hears_every_event_in_order) {
  struct Recorder : EventSink {
    Recorder(std::string who, std::string& into)
        : name(std::move(who)), heard(into) {}
    void on(const Event& event) override {
      heard += name + std::to_string(event.index()) + " ";
    }
    std::string name;
    std::string& heard;
  };
  std::string heard;
  Recorder first("a", heard);
  Recorder second("b", heard);
  FanOutSink both({&first, &second});
  both.on(RunStarted{});
  both.on(RunEnded{});
  EXPECT_EQ(heard, "a0 b0 a3 b3 ");
}

}  // namespace
}  // namespace cleave
