#include "cleave/plan/no_fit.h"

#include <algorithm>

#include "cleave/counted.h"
#include "cleave/error.h"

namespace cleave {
namespace {

// "100 MiB per device", or the range where devices differ.
std::string budget_text(const CutProblem& problem) {
  std::vector<Bytes> budgets;
  for (const CutDevice& device : problem.devices) {
    if (device.memory.value > 0) {
      budgets.push_back(device.memory);
    }
  }
  const auto [least, most] = std::ranges::minmax_element(budgets);
  return to_text(*least) + (*least == *most ? "" : " to " + to_text(*most)) +
         " per device";
}

// Rounded up, so that a budget of what the text says is enough.
std::string at_least(Bytes bytes) {
  Bytes shown = bytes;
  while (parse_bytes(to_text(shown)) < bytes) {
    shown += {1 + shown.value / 1000};  // less than the last digit shown
  }
  return to_text(shown);
}

}  // namespace

void fail_no_fit(const std::string& model, const std::vector<Draft>& drafts) {
  Bytes smallest;
  int stages = 0;
  int fewest = drafts.front().stages();
  int most = fewest;
  for (const Draft& draft : drafts) {
    fewest = std::min(fewest, draft.stages());
    most = std::max(most, draft.stages());
    const Bytes budget = draft.smallest_budget();
    if (stages == 0 || budget < smallest) {
      smallest = budget;
      stages = draft.stages();
    }
  }
  const std::string count = counted(stages, "stage");
  fail("no cut of '" + model + "' into " +
           (fewest == most ? count
                           : std::to_string(fewest) + " to " +
                                 std::to_string(most) + " stages") +
           " fits a memory of " + budget_text(drafts.back().problem()),
       "Give every device at least " + at_least(smallest) +
           (fewest == most ? "" : ", which is enough for " + count) +
           "; or take more devices, a smaller batch or more microbatches.");
}

}  // namespace cleave
