#include <algorithm>
#include <climits>

#include "cleave/atomic_file.h"
#include "cleave/plan/json_fields.h"
#include "cleave/plan/plan.h"

namespace cleave {
namespace {

Json to_json(const StagePlan& stage) {
  return {{"device", stage.device},
          {"layers", stage.layers},
          {"forward_ms", to_milliseconds(stage.forward)},
          {"backward_ms", to_milliseconds(stage.backward)},
          {"parameter_bytes", stage.parameters.value},
          {"peak_bytes", stage.peak.value}};
}

StagePlan read_stage(const JsonFields& fields) {
  return {.device = fields.text("device"),
          .layers = fields.texts("layers"),
          .forward = fields.milliseconds("forward_ms", Seconds{}),
          .backward = fields.milliseconds("backward_ms", Seconds{}),
          .parameters = fields.bytes("parameter_bytes", Bytes{}),
          .peak = fields.bytes("peak_bytes", Bytes{})};
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json stages = Json::array();
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(to_json(stage));
  }
  return to_pretty_text(
      {{"model", plan.model},
       {"batch", plan.batch},
       {"microbatches", plan.microbatches},
       {"schedule", plan.schedule},
       {"stages", stages},
       {"predicted",
        {{"step_ms", to_milliseconds(plan.step)}, {"bubble", plan.bubble}}}});
}

Plan parse_plan(const std::string& json, const std::string& source) {
  const Json root = parse_json(json, source);
  const JsonFields fields(
      root,
      source,
      "",
      {"model", "batch", "microbatches", "schedule", "stages", "predicted"});
  Plan plan{.model = fields.text("model"), .stages = {}};
  plan.batch = fields.whole("batch", 1);
  plan.microbatches = static_cast<int>(fields.whole(
      "microbatches", 1, std::min<std::int64_t>(plan.batch, INT_MAX)));
  plan.schedule = fields.text("schedule");
  for (const JsonFields& stage : fields.objects("stages",
                                                {"device",
                                                 "layers",
                                                 "forward_ms",
                                                 "backward_ms",
                                                 "parameter_bytes",
                                                 "peak_bytes"})) {
    plan.stages.push_back(read_stage(stage));
  }
  if (const auto predicted =
          fields.object("predicted", {"step_ms", "bubble"})) {
    plan.step = predicted->milliseconds("step_ms", Seconds{});
    plan.bubble = predicted->share("bubble", 0);
  }
  return plan;
}

void save_plan(const Plan& plan, const std::filesystem::path& file) {
  write_file_atomically(file, to_json(plan));
}

Plan load_plan(const std::filesystem::path& file) {
  return parse_plan(read_file(file), file.string());
}

}  // namespace cleave
