#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cleave/ids.h"
#include "cleave/policies.h"

// A schedule is data: every rank's actions in order. Generators write the
// computing (generators/), a pass completes it (complete.h), the validator
// proves it can run (validate.h), the simulator times it (simulate.h), the plan
// stores it, and the executor runs it as it stands.
namespace cleave {

// What a rank does. op.h says of every kind what it needs, costs and keeps.
//
// B has two extents: where the schedule also has W of the same stage and
// microbatch, it computes only the gradients that earlier stages need; without
// W it computes those of the weights too.
enum class Op {
  forward,
  backward,
  weight,
  reduce,
  norm,
  update,
  receive_values,
  send_values,
  receive_gradients,
  send_gradients,
  receive_tied_gradients,
  send_tied_gradients,
  receive_tied_weights,
  send_tied_weights,
  reduce_norm,
  receive_norms,
  send_norms,
  gather_weights,
  share_buffers,
};
inline constexpr int kOps = static_cast<int>(Op::share_buffers) + 1;

// Which step an action belongs to, relative to the row's: 0 is this one.
struct Step {
  int value = 0;
  auto operator<=>(const Step&) const = default;
};

struct Action {
  Op op = Op::forward;
  StageId stage;
  int index = 0;  // a microbatch or a bucket, as op.h says
  Step step;

  auto operator<=>(const Action&) const = default;
};

using Row = std::vector<Action>;  // what one rank does, in order

// A weight that two stages use. Its gradient goes from the later one to the
// earlier one, its new value the other way.
struct StageTie {
  StageId earlier;
  StageId later;

  auto operator<=>(const StageTie&) const = default;
};

// Which stages read what which others make.
class StageGraph {
 public:
  // A chain: every stage reads what the one before it makes.
  // NOLINTNEXTLINE(google-explicit-constructor): a number of stages is one.
  StageGraph(int stages = 1, std::vector<StageTie> ties = {})
      : stages_(stages), ties_(std::move(ties)) {}

  int stages() const { return stages_; }
  bool contains(StageId stage) const {
    return stage.value >= 0 && stage.value < stages_;
  }

  // The stages whose values this one reads.
  std::vector<StageId> sources(StageId stage) const {
    return neighbour(StageId{stage.value - 1});
  }

  // The stages that read this one's values.
  std::vector<StageId> readers(StageId stage) const {
    return neighbour(StageId{stage.value + 1});
  }

  const std::vector<StageTie>& ties() const { return ties_; }

  bool operator==(const StageGraph&) const = default;

 private:
  std::vector<StageId> neighbour(StageId stage) const {
    return contains(stage) ? std::vector{stage} : std::vector<StageId>{};
  }

  int stages_;
  std::vector<StageTie> ties_;
};

// How the ranks of a step agree on new weights.
struct Synchronisation {
  // By stage, the buckets of gradients that are summed over replicas. Empty:
  // there is one replica.
  std::vector<int> buckets;
  ShardStates shard_states = ShardStates::none;
  bool clips = false;  // by the norm of all stages' gradients

  bool mirrored() const { return !buckets.empty(); }
  bool operator==(const Synchronisation&) const = default;
};

// What the ranks of one replica do in a step. All replicas do the same.
struct Schedule {
  StageGraph graph;
  int microbatches = 1;
  std::vector<Row> rows;  // one per rank
  Synchronisation synchronisation;

  int stages() const { return graph.stages(); }
  bool operator==(const Schedule&) const = default;
};

// How many sums over replicas (G) the stage has in a step: one per bucket or,
// where replicas keep only their sections of gradients, per microbatch.
int reduce_count(const Schedule& schedule, StageId stage);

// The largest number that the text form names: of a stage, a microbatch or a
// bucket. Far beyond any real schedule; counting up from it cannot overflow.
inline constexpr int kLargestNumber = 99'999;

// "F0", "SB3", "U"; with the stage in front ("2F0") where a rank has several.
std::string to_text(const Action& action, bool with_stage = false);

// "F0 F1 B0 B1". The stage is written where the row has more than one.
std::string to_text(const Row& row);

// One line per rank: "rank 0: F0 F1 B0 B1". The stage is also written where it
// differs from the rank, so that reading gives the same rows.
std::string to_text(const Schedule& schedule);

// The row of a rank as to_text(Schedule) spells it.
std::string to_text(const Row& row, Rank rank);

// Whether every action of the row is of this stage, so that its text need not
// name it.
bool has_only(const Row& row, StageId stage);

// Reads what to_text wrote. `stage` is the stage of actions that name none.
// Throws Error that names the word it could not read.
Row parse_row(std::string_view text, StageId stage = {});

// Reads what to_text(Schedule) wrote: a chain of as many stages, and as many
// microbatches, as its actions name, on one replica. An action that names no
// stage is of the stage of its rank. Throws Error that names the line or the
// word it could not read; whether the schedule can run is for validate.h to
// say.
Schedule parse_schedule(std::string_view text);

}  // namespace cleave
