#include "cleave/report/jsonl.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "cleave/error.h"
#include "cleave/report/text.h"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  const std::string_view name = non_finite_name(value);
  return name.empty() ? Json(value) : Json(name);
}

void put(Json& object, const char* key, std::optional<double> value) {
  if (value) {
    object[key] = number(*value);
  }
}

void put(Json& object, const char* key, std::optional<Seconds> value) {
  if (value) {
    object[key] = number(value->value);
  }
}

Json to_json(const RunStarted& event) {
  Json object{{"event", "run_started"},
              {"model", event.model},
              {"stages", event.stages},
              {"replicas", event.replicas},
              {"microbatches", event.microbatches},
              {"schedule", event.schedule},
              {"steps", event.steps},
              {"epochs", event.epochs},
              {"batch", event.batch}};
  put(object, "predicted_step_seconds", event.predicted_step);
  return object;
}

Json to_json(const StepDone& event) {
  Json object{{"event", "step_done"},
              {"step", event.step},
              {"epoch", event.epoch},
              {"samples", event.samples},
              {"loss", number(event.loss)},
              {"learning_rate", number(event.learning_rate)}};
  put(object, "gradient_norm", event.gradient_norm);
  object["duration_seconds"] = number(event.duration.value);
  object["bubble"] = number(event.bubble);
  Json& peaks = object["peak_memory_bytes"] = Json::array();
  for (const Bytes peak : event.peak_memory) {
    peaks.push_back(peak.value);
  }
  return object;
}

Json to_json(const Evaluated& event) {
  Json object{{"event", "evaluated"},
              {"step", event.step},
              {"data", event.data},
              {"loss", number(event.evaluation.loss)}};
  put(object, "accuracy", event.evaluation.accuracy);
  object["samples"] = event.evaluation.samples;
  return object;
}

Json to_json(const RunEnded& event) {
  Json object{
      {"event", "run_ended"},
      {"steps", event.steps},
      {"interrupted", event.interrupted},
      {"duration_seconds", number(event.duration.value)},
      {"median_step_seconds", number(event.median_step.value)},
      {"median_computing_seconds", number(event.median_computing.value)}};
  put(object, "predicted_step_seconds", event.predicted_step);
  put(object, "predicted_computing_seconds", event.predicted_computing);
  return object;
}

std::string reason() {
  return std::generic_category().message(errno);
}

}  // namespace

std::string to_json_line(const Event& event) {
  const Json object =
      std::visit([](const auto& kind) { return to_json(kind); }, event);
  // Names come from users; a broken byte must not end a training run.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JsonlSink::JsonlSink(std::filesystem::path file, Mode mode)
    : file_(std::move(file)),
      out_(file_, mode == Mode::append ? std::ios::app : std::ios::trunc) {
  if (!out_) {
    fail("cannot open " + file_.string() + " for writing: " + reason(),
         "Check that its folder exists and that you may write there.");
  }
}

void JsonlSink::on(const Event& event) {
  out_ << to_json_line(event) << '\n' << std::flush;
  if (!out_) {
    fail("cannot write to " + file_.string() + ": " + reason(),
         "Make room on the disk or choose another output directory.");
  }
}

}  // namespace cleave
