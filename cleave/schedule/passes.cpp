#include "cleave/schedule/passes.h"

#include "cleave/error.h"
#include "cleave/schedule/order.h"

namespace cleave {

Schedule with_messages(const Schedule& compute) {
  const Order order(compute);
  if (order.has_messages()) {
    fail("the schedule has messages already",
         "Give with_messages() a schedule as make_schedule() returns it.");
  }
  Schedule complete{compute.stages, compute.microbatches, {}};
  for (const Row& row : compute.rows) {
    Row& out = complete.rows.emplace_back();
    for (const Action& action : row) {
      const auto [op, microbatch, stage] = action;
      if (op == Op::weight) {  // nobody else waits for weight gradients
        out.push_back(action);
        continue;
      }
      const bool before = order.crosses(StageId{stage.value - 1});
      const bool behind = order.crosses(stage);
      const bool forward = op == Op::forward;
      if (forward ? before : behind) {
        out.push_back({forward ? Op::receive_forward : Op::receive_backward,
                       microbatch,
                       stage});
      }
      out.push_back(action);
      if (forward ? behind : before) {
        out.push_back({forward ? Op::send_forward : Op::send_backward,
                       microbatch,
                       stage});
      }
    }
  }
  return complete;
}

}  // namespace cleave
