#include "cleave/cli/show_plan.h"

#include "cleave/cli/terminal.h"
#include "cleave/plan/plan_schedule.h"
#include "cleave/report/draw_schedule.h"
#include "cleave/report/plan_table.h"
#include "cleave/schedule/passes.h"

namespace cleave {
namespace {

Timeline timeline_of(const Plan& plan) {
  return simulate(with_messages(schedule_of(plan, plan.microbatches)),
                  costs_of(plan));
}

}  // namespace

std::string plan_text(const Plan& plan) {
  return plan_table(plan, console_options().ascii) + "\n" +
         draw_text(timeline_of(plan), console_width());
}

std::string plan_svg(const Plan& plan) {
  return draw_svg(timeline_of(plan), plan.model + ", " + plan.schedule);
}

}  // namespace cleave
