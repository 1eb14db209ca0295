#include "cleave/plan/fastest_plan.h"

#include <optional>
#include <utility>

#include "cleave/error.h"

namespace cleave {

Plan fastest_plan(const std::vector<int>& numbers,
                  double factor,
                  const std::function<Plan(int)>& make) {
  std::optional<Plan> best;
  std::optional<Error> problem;
  for (const int number : numbers) {
    try {
      Plan plan = make(number);
      if (!best || factor * plan.step < best->step) {
        best = std::move(plan);
      }
    } catch (const Error& error) {
      problem = error;
    }
  }
  if (!best) {
    throw Error(*problem);
  }
  return *std::move(best);
}

}  // namespace cleave
