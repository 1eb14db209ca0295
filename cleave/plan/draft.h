#pragma once

#include <optional>
#include <vector>

#include "cleave/plan/cut.h"
#include "cleave/plan/stage_costs.h"
#include "cleave/schedule/search/search.h"

namespace cleave {

// A draft with its cut.
struct CutDraft {
  std::vector<int> first_layers;  // of every stage, and the number of layers
  std::vector<StagePrediction> stages;
  Seconds step;  // predicted
};

// One way to run a model: everything is decided but where to cut it. For the
// planner only.
class Draft {
 public:
  // `passes`: F, B and W of every rank; they say which rank has which stage.
  // `devices`: one per rank.
  Draft(ScaledRequest scaled,
        const std::vector<DeviceSpec>& devices,
        Schedule passes);

  int stages() const { return passes_.stages(); }
  int ranks() const { return static_cast<int>(passes_.rows.size()); }
  const Schedule& passes() const { return passes_; }
  const ScaledRequest& scaled() const { return scaled_; }
  const std::vector<DeviceSpec>& devices() const { return devices_; }

  // The best cut found; nothing when none fits the memory. First the cut whose
  // slowest stage is fastest; then, if asked for or where that does not fit,
  // moves of single cuts while the predicted step gets shorter, as far as the
  // effort goes.
  std::optional<CutDraft> best_cut(bool moves_cuts) const;

  // A schedule searched for the cut that fits the memory, if one was found.
  std::optional<Schedule> searched_passes(const CutDraft& cut) const;

  // The least budget, the same for every device, with which best_cut() finds
  // something, to a thousandth.
  Bytes smallest_budget() const;

  // What every rank needs at most with these passes.
  std::vector<Bytes> peaks(const Schedule& passes,
                           const std::vector<StagePrediction>& stages) const;

  const CutProblem& problem() const { return problem_; }

 private:
  Draft with_budget(Bytes budget) const;
  CutProblem cut_problem() const;
  CutDraft cut_at(std::vector<int> first_layers) const;
  std::optional<CutDraft> fitting_at(
      const std::vector<int>& first_layers) const;
  bool fits(const std::vector<Bytes>& peaks) const;
  SearchProblem search_problem(const CutDraft& cut) const;

  ScaledRequest scaled_;
  std::vector<DeviceSpec> devices_;
  Schedule passes_;
  std::vector<Rank> placement_;
  CutProblem problem_;
};

}  // namespace cleave
