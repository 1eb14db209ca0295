#include "cleave/cli/show_plan.h"

#include "cleave/cli/terminal.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/report/draw_schedule.h"
#include "cleave/report/plan_table.h"
#include "cleave/schedule/passes.h"
#include "cleave/schedule/simulate_lending.h"

namespace cleave {

Timeline plan_timeline(const Plan& plan) {
  return plan.lend
             ? simulate_lending(
                   training_rows(plan, schedule_of(plan, plan.microbatches)),
                   costs_of(plan))
             : simulate(with_messages(schedule_of(plan, plan.microbatches)),
                        costs_of(plan));
}

std::string plan_text(const Plan& plan) {
  return plan_table(plan, console_options().ascii) + "\n" +
         draw_text(plan_timeline(plan), console_width());
}

std::string plan_svg(const Plan& plan) {
  return draw_svg(plan_timeline(plan), plan.model + ", " + plan.schedule);
}

}  // namespace cleave
