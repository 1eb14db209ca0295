#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cleave/ids.h"
#include "cleave/plan/profile.h"
#include "cleave/shard_states.h"
#include "cleave/units.h"

namespace cleave {

// A device as the planner sees it.
struct DeviceSpec {
  std::string name;  // "cpu:0"
  double speed = 1;  // relative to the device the profile was measured on
  int core = -1;     // of devices that share one core; below zero: none does
  Bytes memory;      // its budget; zero: without limit
};

// What the user fixes; what is left at its default the planner chooses.
struct PlanRequest {
  std::int64_t batch = 1;
  int stages = 0;  // 0: as many as pay
  int stages_per_device =
      0;                 // 0: what the schedule needs, or the planner likes
  int replicas = 1;      // copies of the pipeline; 0: as many as pay
  int microbatches = 0;  // of each; 0: four per device, as far as the batch has
                         // samples (plan() tries several numbers)
  std::string schedule = "auto";  // searched for; or one of the registry
  int state_copies = 2;  // optimizer values kept per parameter (AdamW: 2)
  Shard shard = Shard::none;
  bool lend = true;  // a device that waits does others' work, where it can and
                     // where that pays

  // A message between neighbouring stages. The defaults are for one process,
  // where a message is a pointer handed over.
  Seconds message_latency{5e-6};
  double message_bandwidth = 1e12;  // bytes per second
  // Gradients that replicas add up, in bytes per second.
  double sum_bandwidth = 2e9;
  // What who calls the trainer takes of a device's time between two steps: it
  // reads the next batch and tells of the last. Zero: it has a core of its own.
  Seconds caller;
};

struct StagePlan {
  std::string device;
  int core = -1;  // of devices that share one core; below zero: none does
  std::vector<std::string> layers;
  // Predicted, of one microbatch: gradients of the weights count as `weight`
  // where they can wait, and with `backward` where they cannot.
  Seconds forward;
  Seconds backward;
  Seconds weight;
  Seconds update;   // predicted: the optimizer, once per step
  Seconds message;  // predicted: to the next stage; zero for the last
  Bytes parameters;
  // Predicted memory.
  Bytes fixed;             // all the time: parameters, their copies in another
                           // precision, states, gradients
  Bytes leaving;           // of a microbatch, until the next stage takes it
  Bytes returning;         // of gradients, until the stage before takes them
  Bytes shared;            // of values that it keeps too: from B until its own
                           // has ended
  Bytes activations;       // of a microbatch, from F to B, with its inputs
  Bytes kept_for_weights;  // of a microbatch, from B to W
  // What an action needs at most, above what there was before it.
  Bytes forward_need;
  Bytes backward_need;     // of a B that leaves a W
  Bytes whole_need;        // of a B that leaves none
  Bytes first_whole_need;  // of the first of those, which makes gradients
  Bytes weight_need;
  Bytes first_weight_need;  // of the first W, which makes gradients
  Bytes gradients;          // of `fixed`, what is there from the first one on
  Bytes sums;    // while replicas add up those of one microbatch at once
  Bytes memory;  // the device's budget; zero: without limit
  Bytes peak;    // predicted, of the device: with all its stages

  bool operator==(const StagePlan&) const = default;
};

// A way to divide the devices that was weighed against others.
struct MeshTried {
  int replicas = 1;
  int devices = 1;  // of each replica
  Seconds step;     // predicted; zero: there is no such plan
  Bytes peak;       // predicted, of the device that needs most

  bool operator==(const MeshTried&) const = default;
};

// Who computes what, in which order, and what that is predicted to cost.
struct Plan {
  std::string model;
  std::int64_t batch = 1;
  int replicas = 1;      // copies of the pipeline, on further devices; each has
                         // its part of the batch
  int microbatches = 1;  // of every replica
  Shard shard = Shard::none;
  std::string schedule = "1f1b";
  // A device that waits does the work of others: they are threads of one
  // process, and there is one replica.
  bool lend = false;
  double moving = 0;  // by what share an action of another's stage takes longer
  std::vector<StagePlan> stages;
  Seconds step;       // predicted time of one step; zero: not predicted
  double bubble = 0;  // predicted share of the devices' time spent waiting
  // Why it has so many replicas, where the planner chose: all that were
  // weighed.
  std::vector<MeshTried> compared;

  bool operator==(const Plan&) const = default;
};

// Cuts the profiled model over the devices, in their order: the first of them
// are taken, and for further replicas those behind. Schedule, stages per device
// and cuts are chosen together, by the predicted time from step to step. Where
// the profile's microbatch has another number of samples than the plan's, costs
// are taken to grow with the samples. All predicted times are whole
// picoseconds, which JSON keeps. Throws Error when there are more stages than
// layers or devices, or when no cut fits the devices' memory; the error then
// names the smallest budget that would fit.
Plan make_plan(const Profile& profile,
               const std::vector<DeviceSpec>& devices,
               const PlanRequest& request);

// As JSON that a person can edit, with times in milliseconds. Reading checks
// types and ranges and throws Error that names file and key; what is predicted
// may be left out and is then zero. check_plan() compares with a model. Saving
// replaces the file as a whole or not at all.
std::string to_json(const Plan& plan);
Plan parse_plan(const std::string& json, const std::string& source);
void save_plan(const Plan& plan, const std::filesystem::path& file);
Plan load_plan(const std::filesystem::path& file);

// Throws Error unless the plan's stages hold exactly `layers`, in order, none
// empty, and its schedule and numbers make sense.
void check_plan(const Plan& plan, const std::vector<std::string>& layers);

}  // namespace cleave
