#include "cleave/atomic_file.h"
#include "cleave/plan/json_describe.h"
#include "cleave/plan/profile.h"

namespace cleave {

template <class Fields, Either<LayerCost> Layer>
void describe(Fields& fields, Layer& layer) {
  fields("name", layer.name);
  fields("forward_ms", layer.forward);
  fields("backward_ms", layer.backward);
  fields.optional("weight_ms", layer.weight);
  fields.optional("update_ms", layer.update);
  fields("parameter_bytes", layer.parameters);
  fields.optional("copy_bytes", layer.copies);
  fields("activation_bytes", layer.activations, INT64_MIN);
  fields.optional("kept_for_weights_bytes", layer.kept_for_weights);
  fields("working_bytes", layer.working);
  fields("backward_need_bytes", layer.backward_need);
  fields("whole_need_bytes", layer.whole_need);
  fields("weight_need_bytes", layer.weight_need);
  fields("crossing_bytes", layer.crossing);
  fields.optional("loose_bytes", layer.loose);
}

template <class Fields, Either<StageOverhead> Overhead>
void describe(Fields& fields, Overhead& overhead) {
  fields("forward_ms", overhead.forward);
  fields("backward_ms", overhead.backward);
  fields("weight_ms", overhead.weight);
  fields("update_ms", overhead.update);
}

template <class Fields, Either<LayerTie> Tie>
void describe(Fields& fields, Tie& tie) {
  fields("earlier", tie.earlier);
  fields("later", tie.later);
}

template <class Fields, Either<Profile> Profiled>
void describe(Fields& fields, Profiled& profile) {
  fields("model", profile.model);
  fields("microbatch", profile.microbatch, 1);
  fields("device", profile.device);
  fields("measured", profile.measured);
  fields.optional("overhead", profile.overhead);
  fields("layers", profile.layers);
  fields.optional("ties", profile.ties);
}

std::string to_json(const Profile& profile) {
  return to_pretty_text(to_json_of(profile));
}

Profile parse_profile(const std::string& json, const std::string& source) {
  return read_struct<Profile>(parse_json(json, source), source, "");
}

void save_profile(const Profile& profile, const std::filesystem::path& file) {
  write_file_atomically(file, to_json(profile));
}

Profile load_profile(const std::filesystem::path& file) {
  return parse_profile(read_file(file), file.string());
}

}  // namespace cleave
