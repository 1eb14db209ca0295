#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cleave/plan/basis.h"
#include "cleave/plan/cut.h"

namespace cleave {

// One way to run a model: everything is decided but where to cut it. For the
// planner only.
class Draft {
 public:
  // A schedule of the registry, so many stages on the first devices.
  Draft(const Profile& profile,
        const std::vector<DeviceSpec>& devices,
        const PlanRequest& request,
        std::string schedule,
        int ranks,
        int stages_per_rank);

  int stages() const { return static_cast<int>(placement_.size()); }

  // The best cut found, and what it is predicted to cost; nothing when none
  // fits the memory. First the cut whose slowest stage is fastest; then, if
  // asked for or where that does not fit, moves of single cuts while the
  // predicted step gets shorter, as far as the effort goes.
  std::optional<Plan> best_plan(bool moves_cuts) const;

  // The least budget, the same for every device, with which best_plan() finds
  // something, to a thousandth.
  Bytes smallest_budget() const;

  const CutProblem& problem() const { return problem_; }

 private:
  using Cut = std::vector<int>;  // the first layer of every stage

  bool shares_devices() const;
  Draft with_budget(Bytes budget) const;
  CutProblem cut_problem() const;
  int end_of(int stage, const Cut& cut) const;
  Plan plan_for(const Cut& cut) const;
  std::optional<Plan> fitting_plan(const Cut& cut) const;

  PlanBasis basis_;
  std::string schedule_;
  std::vector<Rank> placement_;
  std::vector<DeviceSpec> devices_;  // of every stage
  CutProblem problem_;
};

}  // namespace cleave
