#include <algorithm>
#include <cmath>

#include "cleave/schedule/search/list_scheduler.h"

namespace cleave {
namespace {

// By stage: how many microbatches lie between the start of a forward and the
// end of its backward, if every rank takes as long as the busiest and nothing
// waits.
std::vector<double> under_way(const SearchProblem& problem) {
  const ScheduleCosts& costs = problem.costs;
  const Seconds each =
      least_period(costs, problem.placement, problem.microbatches) /
      problem.microbatches;
  std::vector<double> counts(problem.placement.size(), 0);
  Seconds behind;
  for (std::size_t stage = counts.size(); stage-- > 0;) {
    behind += costs.stages[stage].forward + costs.stages[stage].backward;
    counts[stage] = each.value > 0 ? behind / each : 0;
    if (stage > 0) {
      behind += costs.stages[stage - 1].values + costs.stages[stage].gradients;
    }
  }
  return counts;
}

// With fewer under way ranks wait; uneven ones may need more.
std::vector<std::vector<int>> in_flight_limits(const SearchProblem& problem) {
  std::vector<std::vector<int>> all;
  for (const double share : {0.75, 1.0, 1.5, 2.0, 3.0, 1e6}) {
    std::vector<int>& limits = all.emplace_back();
    for (const double count : under_way(problem)) {
      const double most = std::ceil(share * count);
      limits.push_back(
          static_cast<int>(std::clamp<double>(most, 1, problem.microbatches)));
    }
  }
  return all;
}

// When ranks do weight gradients.
struct WeightRule {
  std::vector<int> put_off;
  double fit;
};

std::vector<WeightRule> weight_rules(int ranks) {
  constexpr int kAll = 1'000'000;
  const auto per_rank_before = [&](int count) {
    std::vector<int> put_off(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      put_off[rank] = count * rank;
    }
    return put_off;
  };
  const std::vector<int> all(ranks, kAll);
  return {{per_rank_before(0), 0},  // at once
          {per_rank_before(1), 1},  // as zb-h1 does
          {per_rank_before(2), 1},  // as zb-h2 does
          {all, 0},                 // whenever there is nothing else
          {all, 0.5},               // and for half of their time
          {all, 1},                 // and for all of their time
          {all, 1e6}};              // when nothing else will come
}

}  // namespace

std::vector<ListRule> list_rules(const SearchProblem& problem) {
  using Stage = ListRule::Stage;
  const int stages = static_cast<int>(problem.placement.size());
  const int ranks = static_cast<int>(problem.limits.size());
  const std::vector<Stage> stage_rules =
      stages == ranks ? std::vector{Stage::latest}
                      : std::vector{Stage::latest, Stage::oldest_microbatch};
  std::vector<ListRule> all;
  for (const std::vector<int>& in_flight : in_flight_limits(problem)) {
    for (const WeightRule& weights : weight_rules(ranks)) {
      for (const ListRule::Turn turn : {ListRule::Turn::backward_first,
                                        ListRule::Turn::forward_first,
                                        ListRule::Turn::alternate}) {
        for (const Stage stage : stage_rules) {
          for (const bool at_once : {false, true}) {
            all.push_back({turn,
                           stage,
                           in_flight,
                           weights.put_off,
                           weights.fit,
                           at_once,
                           problem.limits});
          }
        }
      }
    }
  }
  return all;
}

}  // namespace cleave
