#include "cleave/cli/show_plan.h"

#include "cleave/cli/terminal.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/report/draw_schedule.h"
#include "cleave/report/plan_table.h"

namespace cleave {

Timeline plan_timeline(const Plan& plan) {
  return predicted_timeline(
      plan, training_rows(plan, schedule_of(plan, plan.microbatches)));
}

std::string plan_text(const Plan& plan) {
  return plan_table(plan, console_options().ascii) + "\n" +
         draw_text(plan_timeline(plan), console_width());
}

std::string plan_svg(const Plan& plan) {
  return draw_svg(plan_timeline(plan), plan.model + ", " + plan.schedule);
}

}  // namespace cleave
