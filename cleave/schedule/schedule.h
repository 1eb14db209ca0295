#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/ids.h"

// A schedule is data: every rank's actions in order. Generators make it
// (registry.h), passes complete it (passes.h), the validator proves it can run
// (validate.h), the simulator times it (simulate.h), the executor runs it.
namespace cleave {

// What a rank does. A generator writes only compute; the message pass adds the
// rest.
//
// B has two extents: where the schedule also has W of the same stage and
// microbatch, it computes only the gradients that the previous stage waits for;
// without W it computes those of the weights too.
enum class Op {
  forward,           // F:  compute a stage's outputs
  backward,          // B:  compute the gradients of a stage
  weight,            // W:  compute the weight gradients that B left open
  receive_forward,   // RF: take the values the previous stage sent
  send_forward,      // SF: hand the values on to the next stage
  receive_backward,  // RB: take the gradients the next stage sent
  send_backward,     // SB: hand the gradients back to the previous stage
  update,            // U:  change a stage's weights; a timeline shows it, no
                     //     schedule has it
};

// Compute keeps a rank busy, an update too; everything else moves a message.
bool is_compute(Op op);

struct Action {
  Op op = Op::forward;
  Microbatch microbatch;
  StageId stage;

  auto operator<=>(const Action&) const = default;
};

using Row = std::vector<Action>;  // what one rank does, in order

struct Schedule {
  int stages = 1;
  int microbatches = 1;
  std::vector<Row> rows;  // one per rank

  bool operator==(const Schedule&) const = default;
};

// "F0", "SB3", "U"; with the stage in front ("2F0") where a rank has several.
std::string to_text(const Action& action, bool with_stage = false);

// "F0 F1 B0 B1". The stage is written where the row has more than one.
std::string to_text(const Row& row);

// One line per rank: "rank 0: F0 F1 B0 B1". The stage is also written where it
// differs from the rank, so that reading gives the same schedule.
std::string to_text(const Schedule& schedule);

// Whether every action of the row is of this stage, so that its text need not
// name it.
bool has_only(const Row& row, StageId stage);

// Reads what to_text wrote. `stage` is the stage of actions that name none.
// Throws Error that names the word it could not read.
Row parse_row(std::string_view text, StageId stage = {});

// Reads what to_text(Schedule) wrote; stages and microbatches are counted from
// the actions. An action that names no stage is of the stage of its rank.
// Throws Error that names the line or the word it could not read; whether the
// schedule can run is for validate.h to say.
Schedule parse_schedule(std::string_view text);

}  // namespace cleave
