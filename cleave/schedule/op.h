#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

// The one table of what ranks can do. Text, order, validator, simulator,
// memory, executor and drawings read it; a further kind is one more row.
namespace cleave {

class Order;
struct ScheduleCosts;
struct StageBytes;

// Actions of one lane of a rank run one after the other, in the row's order.
enum class Lane { compute, network };

// What an action's index counts.
enum class IndexOf { microbatch, bucket, nothing };

// What an action does to the memory of its rank.
struct MemoryUse {
  Bytes needed;  // while it runs, above what is kept
  Bytes change;  // of what is kept, when it has ended
};

struct OpTraits {
  Op op;
  std::string_view letters;  // in the text form: "F"
  std::string_view words;    // "forward"
  Lane lane;
  IndexOf index;
  std::optional<Op> other_end;  // of a message
  // What must have run before it, by a complete or a compute-only schedule.
  std::vector<Action> (*needs)(const Order& order, const Action& action);
  // `split`: the microbatch has a W.
  Seconds (*cost)(const ScheduleCosts& costs, const Action& action, bool split);
  MemoryUse (*memory)(const StageBytes& stage, bool split);
};

std::span<const OpTraits> op_table();
const OpTraits& traits(Op op);

inline Lane lane_of(Op op) {
  return traits(op).lane;
}

// F, B or W: what a generator writes.
inline bool is_pass(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::weight;
}

inline bool is_compute(Op op) {
  return lane_of(op) == Lane::compute;
}

// The end of a message that waits for the other one.
bool is_receive(Op op);

// Whether the action adds to the gradients of weights.
inline bool adds_gradients(Op op, bool split) {
  return op == Op::weight || (op == Op::backward && !split);
}

}  // namespace cleave
