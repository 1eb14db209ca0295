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
      if (const auto receive = order.received_for(action)) {
        out.push_back(*receive);
      }
      out.push_back(action);
      if (const auto send = order.sent_after(action)) {
        out.push_back(*send);
      }
    }
  }
  return complete;
}

}  // namespace cleave
