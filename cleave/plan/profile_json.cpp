#include <climits>

#include "cleave/atomic_file.h"
#include "cleave/plan/json_fields.h"
#include "cleave/plan/profile.h"

namespace cleave {
namespace {

Json to_json(const LayerCost& layer) {
  return {{"name", layer.name},
          {"forward_ms", to_milliseconds(layer.forward)},
          {"backward_ms", to_milliseconds(layer.backward)},
          {"weight_ms", to_milliseconds(layer.weight)},
          {"update_ms", to_milliseconds(layer.update)},
          {"parameter_bytes", layer.parameters.value},
          {"copy_bytes", layer.copies.value},
          {"activation_bytes", layer.activations.value},
          {"kept_for_weights_bytes", layer.kept_for_weights.value},
          {"working_bytes", layer.working.value},
          {"backward_need_bytes", layer.backward_need.value},
          {"whole_need_bytes", layer.whole_need.value},
          {"first_whole_need_bytes", layer.first_whole_need.value},
          {"weight_need_bytes", layer.weight_need.value},
          {"first_weight_need_bytes", layer.first_weight_need.value},
          {"crossing_bytes", layer.crossing.value},
          {"loose_bytes", layer.loose.value}};
}

JsonKeys layer_keys() {
  return {"name",
          "forward_ms",
          "backward_ms",
          "weight_ms",
          "update_ms",
          "parameter_bytes",
          "copy_bytes",
          "activation_bytes",
          "kept_for_weights_bytes",
          "working_bytes",
          "backward_need_bytes",
          "whole_need_bytes",
          "first_whole_need_bytes",
          "weight_need_bytes",
          "first_weight_need_bytes",
          "crossing_bytes",
          "loose_bytes"};
}

LayerCost read_layer(const JsonFields& fields) {
  const Bytes working = fields.bytes("working_bytes", Bytes{});
  return {.name = fields.text("name"),
          .forward = fields.milliseconds("forward_ms"),
          .backward = fields.milliseconds("backward_ms"),
          .weight = fields.milliseconds("weight_ms", Seconds{}),
          .update = fields.milliseconds("update_ms", Seconds{}),
          .parameters = fields.bytes("parameter_bytes"),
          .copies = fields.bytes("copy_bytes", Bytes{}),
          .activations = {fields.whole("activation_bytes", INT64_MIN)},
          .kept_for_weights = fields.bytes("kept_for_weights_bytes", Bytes{}),
          .working = working,
          .backward_need = fields.bytes("backward_need_bytes", working),
          .whole_need = fields.bytes("whole_need_bytes", working),
          .first_whole_need = fields.bytes("first_whole_need_bytes", working),
          .weight_need = fields.bytes("weight_need_bytes", working),
          .first_weight_need = fields.bytes("first_weight_need_bytes", working),
          .crossing = fields.bytes("crossing_bytes"),
          .loose = fields.bytes("loose_bytes", Bytes{})};
}

Json to_json(const StageOverhead& overhead) {
  return {{"forward_ms", to_milliseconds(overhead.forward)},
          {"backward_ms", to_milliseconds(overhead.backward)},
          {"weight_ms", to_milliseconds(overhead.weight)},
          {"update_ms", to_milliseconds(overhead.update)}};
}

StageOverhead read_overhead(const JsonFields& fields) {
  return {.forward = fields.milliseconds("forward_ms"),
          .backward = fields.milliseconds("backward_ms"),
          .weight = fields.milliseconds("weight_ms"),
          .update = fields.milliseconds("update_ms")};
}

Json to_json(const ForeignCost& foreign) {
  return {{"bytes", foreign.bytes.value},
          {"forward_ms", to_milliseconds(foreign.forward)},
          {"backward_ms", to_milliseconds(foreign.backward)}};
}

ForeignCost read_foreign(const JsonFields& fields) {
  return {.bytes = fields.bytes("bytes"),
          .forward = fields.milliseconds("forward_ms"),
          .backward = fields.milliseconds("backward_ms")};
}

}  // namespace

std::string to_json(const Profile& profile) {
  Json layers = Json::array();
  for (const LayerCost& layer : profile.layers) {
    layers.push_back(to_json(layer));
  }
  return to_pretty_text({{"model", profile.model},
                         {"microbatch", profile.microbatch},
                         {"device", profile.device},
                         {"measured", profile.measured},
                         {"spread", profile.spread},
                         {"uneven", profile.uneven},
                         {"moving", profile.moving},
                         {"overhead", to_json(profile.overhead)},
                         {"foreign", to_json(profile.foreign)},
                         {"layers", layers}});
}

Profile parse_profile(const std::string& json, const std::string& source) {
  const Json root = parse_json(json, source);
  const JsonFields fields(root,
                          source,
                          "",
                          {"model",
                           "microbatch",
                           "device",
                           "measured",
                           "spread",
                           "uneven",
                           "moving",
                           "overhead",
                           "foreign",
                           "layers"});
  Profile profile{
      .model = fields.text("model"),
      .microbatch = fields.whole("microbatch", 1),
      .device = fields.text("device"),
      .measured = static_cast<int>(fields.whole("measured", 0, INT_MAX)),
      .spread = fields.share("spread", 0.0),
      .uneven = fields.share("uneven", 0.0),
      .moving = fields.share("moving", 0.0),
      .overhead = {},
      .foreign = {},
      .layers = {}};
  if (const auto overhead = fields.object(
          "overhead",
          {"forward_ms", "backward_ms", "weight_ms", "update_ms"})) {
    profile.overhead = read_overhead(*overhead);
  }
  if (const auto foreign =
          fields.object("foreign", {"bytes", "forward_ms", "backward_ms"})) {
    profile.foreign = read_foreign(*foreign);
  }
  for (const JsonFields& layer : fields.objects("layers", layer_keys())) {
    profile.layers.push_back(read_layer(layer));
  }
  return profile;
}

void save_profile(const Profile& profile, const std::filesystem::path& file) {
  write_file_atomically(file, to_json(profile));
}

Profile load_profile(const std::filesystem::path& file) {
  return parse_profile(read_file(file), file.string());
}

}  // namespace cleave
