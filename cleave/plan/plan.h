#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cleave/ids.h"
#include "cleave/policies.h"
#include "cleave/schedule/costs.h"
#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

namespace cleave {

struct Mesh;

// What the user wishes; what is left at its default the planner chooses.
struct PlanRequest {
  int stages = 0;             // 0: as many as pay
  int stages_per_device = 0;  // 0: what the schedule needs, or what pays
  int replicas = 1;           // copies of the pipeline; 0: as many as pay
  int microbatches = 0;  // of each; 0: four per device, as far as the batch
                         // has samples (plan() tries several numbers)
  // "auto": searched for; one of the generators; or "file:S.txt", a schedule in
  // its text form.
  std::string schedule = "auto";
  ShardStates shard_states = ShardStates::none;
  // A rank without work may do another's, where runner.h allows it.
  bool steals = true;
};

// Two layers that use one weight, with no further user between them.
struct LayerTie {
  int earlier = 0;
  int later = 0;

  auto operator<=>(const LayerTie&) const = default;
};

// A device of the first replica; those of further replicas follow in order.
struct PlannedDevice {
  std::string name;  // "cpu:0", for people
  Bytes memory;      // its budget; zero: without limit

  bool operator==(const PlannedDevice&) const = default;
};

struct StagePlan {
  Rank rank;  // in its replica, as the schedule's rows say
  std::vector<std::string> layers;
  // Layers whose gradients replicas sum together, in the order in which a
  // backward completes them. Empty: there is one replica.
  std::vector<std::vector<std::string>> buckets;

  bool operator==(const StagePlan&) const = default;
};

// What a stage is predicted to cost.
struct StagePrediction {
  StageCost cost;
  StageBytes memory;
  Bytes parameters;
  Bytes fixed;  // all the time: parameters, their copies in another precision,
                // gradients, states

  bool operator==(const StagePrediction&) const = default;
};

// A way to divide the devices that was weighed against others.
struct MeshTried {
  int replicas = 1;
  int devices = 1;  // of each replica
  Seconds step;     // predicted; zero: there is no such plan
  Bytes peak;       // predicted, of the device that needs most

  bool operator==(const MeshTried&) const = default;
};

struct Prediction {
  Seconds step;              // from step to step
  double bubble = 0;         // share of the devices' time spent waiting
  std::vector<Bytes> peaks;  // of every device of a replica: never exceeded
  std::vector<StagePrediction> stages;
  // All that were weighed, where the planner chose the number of replicas.
  std::vector<MeshTried> compared;

  bool operator==(const Prediction&) const = default;
};

// Who computes what, in which order: complete, to be saved, read back, edited
// and run. The prediction explains it and can be left out. Some facts stand in
// the schedule too; check_plan() compares them.
struct Plan {
  std::string model;
  std::int64_t batch = 1;
  int replicas = 1;  // copies of the pipeline; each has its part of the batch
  std::vector<PlannedDevice> devices;
  std::vector<StagePlan> stages;
  std::string schedule_name;  // where the schedule comes from: "1f1b", "auto"
  Schedule schedule;          // of every replica, with its microbatches
  bool steals = false;  // a rank without work does the next action of another
  std::string in_order_because;  // if it does not, where the planner decided
  std::optional<Prediction> prediction;

  bool operator==(const Plan&) const = default;
};

Mesh mesh_of(const Plan& plan);

// The rank of every stage.
std::vector<Rank> placement_of(const Plan& plan);

// The first layer of every stage, and the number of layers at the end.
std::vector<int> first_layers_of(const Plan& plan);

// As JSON that a person can edit, with times in milliseconds. Of a prediction,
// what its stages cost and what was compared is saved. Reading makes the rest
// again, so that it is true of a plan that was edited. Reading checks types,
// ranges and the plan itself, and throws Error that names the file. A plan of
// another format is refused. Saving replaces the file as a whole or not at all.
std::string to_json(const Plan& plan);
Plan parse_plan(const std::string& json, const std::string& source);
void save_plan(const Plan& plan, const std::filesystem::path& file);
Plan load_plan(const std::filesystem::path& file);

// The ties between stages that those between layers make.
std::vector<StageTie> stage_ties(const std::vector<int>& first_layers,
                                 const std::vector<LayerTie>& ties);

// The schedule of the plan's stages and replicas, without rows and
// microbatches. With one replica nothing is divided, whatever `shard_states`
// says.
Schedule schedule_frame(const Plan& plan,
                        std::vector<StageTie> ties,
                        ShardStates shard_states,
                        bool clips);

// Throws Error unless the plan's numbers make sense, what it says twice agrees,
// and its schedule can run. To be called before anything else uses the plan.
void check_plan(const Plan& plan);

// The same, and its stages must hold exactly these layers, in order, none
// empty, with these ties.
void check_plan(const Plan& plan,
                const std::vector<std::string>& layers,
                const std::vector<LayerTie>& ties = {});

}  // namespace cleave
