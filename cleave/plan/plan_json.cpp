#include <algorithm>
#include <utility>

#include "cleave/atomic_file.h"
#include "cleave/error.h"
#include "cleave/plan/json_describe.h"
#include "cleave/plan/plan.h"
#include "cleave/plan/predict.h"

namespace cleave {
namespace {

// Raised when a plan's meaning changes.
constexpr int kPlanFormat = 2;

// A schedule as a plan writes it: a line of text for every rank.
struct ScheduleText {
  std::string name;
  int microbatches = 1;
  std::vector<std::string> rows;
};

// What is not in the rows.
struct UpdateText {
  std::string shard_states = "none";
  bool clips = false;
};

// What a prediction is made from.
struct PredictionText {
  std::vector<StagePrediction> stages;
  std::vector<MeshTried> compared;

  bool operator==(const PredictionText&) const = default;
};

// A plan as its file has it.
struct PlanFile {
  int format = kPlanFormat;
  Plan plan;
  std::optional<PredictionText> prediction;
  std::vector<StageTie> ties;
  UpdateText updates;
  ScheduleText schedule;
};

}  // namespace

// Found by their arguments, so not in the namespace above.
template <class Fields, Either<PlannedDevice> Device>
void describe(Fields& fields, Device& device) {
  fields("name", device.name);
  fields.optional("memory_bytes", device.memory);
}

template <class Fields, Either<StagePlan> Stage>
void describe(Fields& fields, Stage& stage) {
  fields("rank", stage.rank);
  fields("layers", stage.layers);
  fields.optional("buckets", stage.buckets);
}

template <class Fields, Either<StageTie> Tie>
void describe(Fields& fields, Tie& tie) {
  fields("earlier", tie.earlier);
  fields("later", tie.later);
}

template <class Fields, Either<UpdateText> Updates>
void describe(Fields& fields, Updates& updates) {
  fields("shard_states", updates.shard_states);
  fields("clips", updates.clips);
}

template <class Fields, Either<ScheduleText> Text>
void describe(Fields& fields, Text& text) {
  fields("name", text.name);
  fields("microbatches", text.microbatches, 1);
  fields("rows", text.rows);
}

template <class Fields, Either<StageCost> Cost>
void describe(Fields& fields, Cost& cost) {
  fields("forward_ms", cost.forward);
  fields("backward_ms", cost.backward);
  fields("weight_ms", cost.weight);
  fields("update_ms", cost.update);
  fields("values_ms", cost.values);
  fields("gradients_ms", cost.gradients);
  fields("reduce_ms", cost.reduce);
}

template <class Fields, Either<StageBytes> Memory>
void describe(Fields& fields, Memory& memory) {
  fields("kept_bytes", memory.kept);
  fields("kept_for_weights_bytes", memory.kept_for_weights);
  fields("forward_need_bytes", memory.forward_need);
  fields("backward_need_bytes", memory.backward_need);
  fields("whole_need_bytes", memory.whole_need);
  fields("weight_need_bytes", memory.weight_need);
  fields("sum_bytes", memory.sums);
  fields("leaving_bytes", memory.leaving);
  fields("returning_bytes", memory.returning);
  fields("shared_bytes", memory.shared);
}

template <class Fields, Either<StagePrediction> Stage>
void describe(Fields& fields, Stage& stage) {
  fields("cost", stage.cost);
  fields("memory", stage.memory);
  fields("parameter_bytes", stage.parameters);
  fields("fixed_bytes", stage.fixed);
}

template <class Fields, Either<MeshTried> Mesh>
void describe(Fields& fields, Mesh& mesh) {
  fields("replicas", mesh.replicas, 1);
  fields("devices", mesh.devices, 1);
  fields("step_ms", mesh.step);
  fields("peak_bytes", mesh.peak);
}

template <class Fields, Either<PredictionText> Predicted>
void describe(Fields& fields, Predicted& prediction) {
  fields("stages", prediction.stages);
  fields.optional("compared", prediction.compared);
}

template <class Fields, Either<PlanFile> File>
void describe(Fields& fields, File& file) {
  auto& plan = file.plan;
  fields("format", file.format);
  fields("model", plan.model);
  fields("batch", plan.batch, 1);
  fields("replicas", plan.replicas, 1);
  fields("devices", plan.devices);
  fields("stages", plan.stages);
  fields.optional("ties", file.ties);
  fields("updates", file.updates);
  fields("schedule", file.schedule);
  fields("steals", plan.steals);
  fields.optional("in_order_because", plan.in_order_because);
  fields.optional("prediction", file.prediction);
}

namespace {

void check_format(const Json& json, const std::string& source) {
  const bool is_object = json.is_object();
  if (is_object && json.contains("format") && json["format"] == kPlanFormat) {
    return;
  }
  if (is_object && (json.contains("format") || json.contains("predicted") ||
                    json.contains("stages"))) {
    fail(source + " is a plan of another version of cleave",
         "Plan again with cleave plan.");
  }
}

ShardStates shard_states_in(const PlanFile& file, const std::string& source) {
  try {
    return shard_states_named(file.updates.shard_states);
  } catch (const Error& error) {
    fail(source + ": updates.shard_states: " + error.problem(), error.fix());
  }
}

Schedule schedule_in(const PlanFile& file, const std::string& source) {
  const ScheduleText& text = file.schedule;
  std::vector<StageTie> ties = file.ties;
  std::ranges::sort(ties);  // as stage_ties() has them
  Schedule schedule = schedule_frame(file.plan,
                                     std::move(ties),
                                     shard_states_in(file, source),
                                     file.updates.clips);
  schedule.microbatches = text.microbatches;
  for (int rank = 0; const std::string& row : text.rows) {
    try {
      schedule.rows.push_back(parse_row(row, StageId{rank}));
    } catch (const Error& error) {
      fail(source + ": schedule.rows[" + std::to_string(rank) +
               "]: " + error.problem(),
           error.fix());
    }
    ++rank;
  }
  return schedule;
}

// The plan's prediction is made again: its rows may have been edited.
void check_and_predict(PredictionText* prediction,
                       Plan& plan,
                       const std::string& source) {
  try {
    check_plan(plan);
    if (prediction != nullptr) {
      plan.prediction = predict(plan, std::move(prediction->stages));
      plan.prediction->compared = std::move(prediction->compared);
    }
  } catch (const Error& error) {
    fail(source + ": " + error.problem(), error.fix());
  }
}

}  // namespace

std::string to_json(const Plan& plan) {
  const Schedule& schedule = plan.schedule;
  const Synchronisation& all = schedule.synchronisation;
  PlanFile file{.plan = plan, .ties = schedule.graph.ties()};
  file.updates = {.shard_states = std::string(name_of(all.shard_states)),
                  .clips = all.clips};
  file.schedule = {.name = plan.schedule_name,
                   .microbatches = schedule.microbatches};
  for (Rank rank; rank.value < std::ssize(schedule.rows); ++rank.value) {
    file.schedule.rows.push_back(to_text(schedule.rows[rank.value], rank));
  }
  if (plan.prediction) {
    file.prediction = {plan.prediction->stages, plan.prediction->compared};
  }
  return to_pretty_text(to_json_of(file));
}

Plan parse_plan(const std::string& json, const std::string& source) {
  const Json root = parse_json(json, source);
  check_format(root, source);
  PlanFile file = read_struct<PlanFile>(root, source, "");
  file.plan.schedule_name = file.schedule.name;
  file.plan.schedule = schedule_in(file, source);
  check_and_predict(
      file.prediction ? &*file.prediction : nullptr, file.plan, source);
  return std::move(file.plan);
}

void save_plan(const Plan& plan, const std::filesystem::path& file) {
  write_file_atomically(file, to_json(plan));
}

Plan load_plan(const std::filesystem::path& file) {
  return parse_plan(read_file(file), file.string());
}

}  // namespace cleave
