#include "cleave/cli/show_plan.h"

#include "cleave/cli/terminal.h"
#include "cleave/report/draw_schedule.h"
#include "cleave/report/plan_table.h"
#include "cleave/schedule/passes.h"
#include "cleave/schedule/registry.h"

namespace cleave {
namespace {

// A plan written by hand has no times; its schedule is then drawn with even
// stages whose backward takes twice their forward.
Timeline timeline_of(const Plan& plan) {
  const int stages = static_cast<int>(plan.stages.size());
  ScheduleCosts costs;
  for (const StagePlan& stage : plan.stages) {
    costs.stages.push_back(plan.step.value > 0
                               ? StageCost{stage.forward, stage.backward}
                               : StageCost{Seconds{0.001}, Seconds{0.002}});
  }
  costs.forward_message.resize(stages - 1);
  costs.backward_message.resize(stages - 1);
  return simulate(
      with_messages(make_schedule(
          plan.schedule, {.ranks = stages, .microbatches = plan.microbatches})),
      costs);
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
