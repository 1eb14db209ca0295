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
          {"weight_ms", to_milliseconds(stage.weight)},
          {"update_ms", to_milliseconds(stage.update)},
          {"message_ms", to_milliseconds(stage.message)},
          {"parameter_bytes", stage.parameters.value},
          {"fixed_bytes", stage.fixed.value},
          {"leaving_bytes", stage.leaving.value},
          {"returning_bytes", stage.returning.value},
          {"shared_bytes", stage.shared.value},
          {"activation_bytes", stage.activations.value},
          {"kept_for_weights_bytes", stage.kept_for_weights.value},
          {"forward_need_bytes", stage.forward_need.value},
          {"backward_need_bytes", stage.backward_need.value},
          {"whole_need_bytes", stage.whole_need.value},
          {"first_whole_need_bytes", stage.first_whole_need.value},
          {"weight_need_bytes", stage.weight_need.value},
          {"first_weight_need_bytes", stage.first_weight_need.value},
          {"gradient_bytes", stage.gradients.value},
          {"sum_bytes", stage.sums.value},
          {"memory_bytes", stage.memory.value},
          {"peak_bytes", stage.peak.value}};
}

StagePlan read_stage(const JsonFields& fields) {
  return {.device = fields.text("device"),
          .core = static_cast<int>(fields.whole("core", 0, INT_MAX, -1)),
          .layers = fields.texts("layers"),
          .forward = fields.milliseconds("forward_ms", Seconds{}),
          .backward = fields.milliseconds("backward_ms", Seconds{}),
          .weight = fields.milliseconds("weight_ms", Seconds{}),
          .update = fields.milliseconds("update_ms", Seconds{}),
          .message = fields.milliseconds("message_ms", Seconds{}),
          .parameters = fields.bytes("parameter_bytes", Bytes{}),
          .fixed = fields.bytes("fixed_bytes", Bytes{}),
          .leaving = fields.bytes("leaving_bytes", Bytes{}),
          .returning = fields.bytes("returning_bytes", Bytes{}),
          .shared = fields.bytes("shared_bytes", Bytes{}),
          .activations = fields.bytes("activation_bytes", Bytes{}),
          .kept_for_weights = fields.bytes("kept_for_weights_bytes", Bytes{}),
          .forward_need = fields.bytes("forward_need_bytes", Bytes{}),
          .backward_need = fields.bytes("backward_need_bytes", Bytes{}),
          .whole_need = fields.bytes("whole_need_bytes", Bytes{}),
          .first_whole_need = fields.bytes("first_whole_need_bytes", Bytes{}),
          .weight_need = fields.bytes("weight_need_bytes", Bytes{}),
          .first_weight_need = fields.bytes("first_weight_need_bytes", Bytes{}),
          .gradients = fields.bytes("gradient_bytes", Bytes{}),
          .sums = fields.bytes("sum_bytes", Bytes{}),
          .memory = fields.bytes("memory_bytes", Bytes{}),
          .peak = fields.bytes("peak_bytes", Bytes{})};
}

const JsonKeys& plan_keys() {
  static const JsonKeys keys{"model",
                             "batch",
                             "replicas",
                             "microbatches",
                             "shard",
                             "schedule",
                             "lend",
                             "moving",
                             "stages",
                             "predicted",
                             "compared"};
  return keys;
}

const JsonKeys& stage_keys() {
  static const JsonKeys keys{"device",
                             "core",
                             "layers",
                             "forward_ms",
                             "backward_ms",
                             "weight_ms",
                             "update_ms",
                             "message_ms",
                             "parameter_bytes",
                             "fixed_bytes",
                             "leaving_bytes",
                             "returning_bytes",
                             "shared_bytes",
                             "activation_bytes",
                             "kept_for_weights_bytes",
                             "forward_need_bytes",
                             "backward_need_bytes",
                             "whole_need_bytes",
                             "first_whole_need_bytes",
                             "weight_need_bytes",
                             "first_weight_need_bytes",
                             "gradient_bytes",
                             "sum_bytes",
                             "memory_bytes",
                             "peak_bytes"};
  return keys;
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json stages = Json::array();
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(to_json(stage));
    if (stage.core >= 0) {
      stages.back()["core"] = stage.core;
    }
  }
  Json json{
      {"model", plan.model},
      {"batch", plan.batch},
      {"replicas", plan.replicas},
      {"microbatches", plan.microbatches},
      {"shard", kShardNames[static_cast<std::size_t>(plan.shard)]},
      {"schedule", plan.schedule},
      {"lend", plan.lend},
      {"moving", plan.moving},
      {"stages", stages},
      {"predicted",
       {{"step_ms", to_milliseconds(plan.step)}, {"bubble", plan.bubble}}}};
  for (const MeshTried& mesh : plan.compared) {
    json["compared"].push_back({{"replicas", mesh.replicas},
                                {"devices", mesh.devices},
                                {"step_ms", to_milliseconds(mesh.step)},
                                {"peak_bytes", mesh.peak.value}});
  }
  return to_pretty_text(json);
}

Plan parse_plan(const std::string& json, const std::string& source) {
  const Json root = parse_json(json, source);
  const JsonFields fields(root, source, "", plan_keys());
  Plan plan{.model = fields.text("model"), .stages = {}};
  plan.batch = fields.whole("batch", 1);
  const auto most = std::min<std::int64_t>(plan.batch, INT_MAX);
  plan.replicas = static_cast<int>(fields.whole("replicas", 1, most, 1));
  plan.microbatches =
      static_cast<int>(fields.whole("microbatches", 1, most / plan.replicas));
  if (fields.has("shard")) {
    plan.shard = shard_named(fields.text("shard"));
  }
  plan.schedule = fields.text("schedule");
  plan.lend = fields.truth("lend", false);
  plan.moving = fields.share("moving", 0.0);
  for (const JsonFields& stage : fields.objects("stages", stage_keys())) {
    plan.stages.push_back(read_stage(stage));
  }
  if (const auto predicted =
          fields.object("predicted", {"step_ms", "bubble"})) {
    plan.step = predicted->milliseconds("step_ms", Seconds{});
    plan.bubble = predicted->share("bubble", 0);
  }
  if (fields.has("compared")) {
    for (const JsonFields& mesh : fields.objects(
             "compared", {"replicas", "devices", "step_ms", "peak_bytes"})) {
      plan.compared.push_back(
          {.replicas = static_cast<int>(mesh.whole("replicas", 1, INT_MAX)),
           .devices = static_cast<int>(mesh.whole("devices", 1, INT_MAX)),
           .step = mesh.milliseconds("step_ms"),
           .peak = mesh.bytes("peak_bytes")});
    }
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
