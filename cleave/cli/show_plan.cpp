#include "cleave/cli/show_plan.h"

#include "cleave/cli/terminal.h"
#include "cleave/plan/predict.h"
#include "cleave/report/draw_schedule.h"
#include "cleave/report/plan_table.h"

namespace cleave {

std::string plan_text(const Plan& plan) {
  return plan_table(plan, console_options().ascii) + "\n" +
         draw_text(predicted_timeline(plan), console_width());
}

std::string plan_svg(const Plan& plan) {
  return draw_svg(predicted_timeline(plan),
                  plan.model + ", " + plan.schedule_name);
}

}  // namespace cleave
