#pragma once

#include <cstddef>
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

// What an action keeps busy.
enum class Lane { compute, network };

// Whether a rank goes on in its row when an action has ended, or has begun.
enum class Going { when_ended, when_begun };

// What an action's index counts.
enum class IndexOf { microbatch, bucket, nothing };

// What an action does to the memory of its rank.
struct MemoryUse {
  Bytes needed;  // while it runs, above what is kept
  Bytes change;  // of what is kept, when it has ended
};

// What an action leaves in its rank's memory for the stages that take it.
struct HandedOn {
  Bytes until_taken;  // until the taker begins
  Bytes until_done;   // until the taker has ended
};

enum class MessageEnd { none, send, receive };

struct OpTraits {
  Op op;
  std::string_view letters;  // in the text form: "F"
  std::string_view words;    // "forward"
  Lane lane;
  IndexOf index;
  Going going;
  MessageEnd end;               // of a message
  std::optional<Op> other_end;  // of the same message
  // What must have run before it, by a complete or a compute-only schedule.
  std::vector<Action> (*needs)(const Order& order, const Action& action);
  // `split`: the microbatch has a W.
  Seconds (*cost)(const ScheduleCosts& costs, const Action& action, bool split);
  MemoryUse (*memory)(const StageBytes& stage, bool split);
  // Whose action of the same kind takes what this one hands on.
  std::vector<StageId> (*takers)(const StageGraph& graph, StageId stage);
  HandedOn (*hands_on)(const StageBytes& stage);
};

std::span<const OpTraits> op_table();
const OpTraits& traits(Op op);

// Whether the table has an entry for every op, in the order of Op.
template <typename Table>
constexpr bool has_every_op(const Table& table) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].op != static_cast<Op>(i)) {
      return false;
    }
  }
  return table.size() == kOps;
}

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

inline bool is_send(Op op) {
  return traits(op).end == MessageEnd::send;
}

// It waits for the other end.
inline bool is_receive(Op op) {
  return traits(op).end == MessageEnd::receive;
}

// Whether the action adds to the gradients of weights.
inline bool adds_gradients(Op op, bool split) {
  return op == Op::weight || (op == Op::backward && !split);
}

}  // namespace cleave
