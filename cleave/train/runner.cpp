#include "cleave/train/runner.h"

#include <utility>

#include "cleave/plan/runner.h"
#include "cleave/train/stealing/stealing.h"

namespace cleave {
namespace {

class InOrder : public Runner {
 public:
  void run(Rank rank, const Pass& pass, ActionPerformer& actions) override {
    const Row& row = pass.schedule->row(rank);
    for (std::size_t position = 0; position < row.size(); ++position) {
      actions.perform(row, position, rank);
    }
  }
};

}  // namespace

std::unique_ptr<Runner> make_in_order() {
  return std::make_unique<InOrder>();
}

std::unique_ptr<Runner> make_runner(const Plan& plan,
                                    bool all_ranks_are_local,
                                    Seconds patience,
                                    std::function<bool()> stopped) {
  const std::string why =
      why_in_order(plan,
                   {.wants_stealing = plan.steals,
                    .ranks_are_processes = !all_ranks_are_local});
  return why.empty() ? make_stealing(plan, patience, std::move(stopped))
                     : make_in_order();
}

}  // namespace cleave
