#include "cleave/plan/cut.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <vector>

#include "cleave/plan/picoseconds.h"

namespace cleave {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// What the layer keeps for as long as the device holds microbatches.
Bytes kept(const CutLayer& layer, const CutDevice& device) {
  return layer.fixed + device.in_flight * layer.activations;
}

// The problem in whole numbers, so that every comparison is exact.
struct Chain {
  explicit Chain(const CutProblem& problem);

  // What a layer costs on the device of a stage.
  struct Cost {
    std::int64_t time = 0;  // picoseconds
    std::int64_t kept = 0;  // bytes
    std::int64_t working = 0;
  };

  int layers;
  int stages;
  std::vector<std::vector<Cost>> costs;  // [stage][layer]
  std::vector<std::int64_t> cut;     // [i]: before layer i; zero at the ends
  std::vector<std::int64_t> budget;  // of every stage, in bytes
};

Chain::Chain(const CutProblem& problem)
    : layers(static_cast<int>(problem.layers.size())),
      stages(static_cast<int>(problem.devices.size())),
      cut(problem.layers.size() + 1) {
  assert(problem.cuts.size() + 1 == problem.layers.size());
  for (std::size_t i = 0; i < problem.cuts.size(); ++i) {
    cut[i + 1] = to_picoseconds(problem.cuts[i]);
  }
  for (const CutDevice& device : problem.devices) {
    budget.push_back(device.memory.value == 0 ? kNever : device.memory.value);
    std::vector<Cost>& row = costs.emplace_back();
    row.reserve(problem.layers.size());
    for (const CutLayer& layer : problem.layers) {
      row.push_back({to_picoseconds(layer.time / device.speed),
                     kept(layer, device).value,
                     layer.working.value});
    }
  }
}

// What a stage needs. Both only grow with the number of its layers, so a search
// that makes a stage longer can stop as soon as one of them is too much.
struct StageLoad {
  std::int64_t compute = 0;  // picoseconds, without the cuts
  std::int64_t bytes = 0;
};

// Calls visit(first, load) for the stages that end before layer `end`, the
// shortest first, until it returns false. Leaves a layer for every stage
// before.
template <typename Visit>
void for_each_start(const Chain& chain, int stage, int end, Visit visit) {
  const std::vector<Chain::Cost>& costs = chain.costs[stage];
  Chain::Cost sum;
  for (int first = end - 1; first >= stage; --first) {
    sum.time += costs[first].time;
    sum.kept += costs[first].kept;
    sum.working = std::max(sum.working, costs[first].working);
    if (!visit(first, StageLoad{sum.time, sum.kept + sum.working})) {
      return;
    }
  }
}

// Calls visit(stage, end) for every end a stage can have, stage by stage.
template <typename Visit>
void for_each_end(const Chain& chain, Visit visit) {
  for (int stage = 0; stage < chain.stages; ++stage) {
    const int later = chain.stages - stage - 1;  // a layer each
    const int last = chain.layers - later;
    for (int end = later == 0 ? last : stage + 1; end <= last; ++end) {
      visit(stage, end);
    }
  }
}

// The least possible largest load of a stage. better(stage, end, previous)
// gives it for the first `stage` + 1 stages over the first `end` layers, from
// the results for one stage less.
template <typename Better>
std::int64_t minimax(const Chain& chain, Better better) {
  // [stage][end]: of the first `stage` stages over the first `end` layers.
  std::vector<std::vector<std::int64_t>> best(
      chain.stages + 1, std::vector<std::int64_t>(chain.layers + 1, kNever));
  best[0][0] = 0;
  for_each_end(chain, [&](int stage, int end) {
    best[stage + 1][end] = better(stage, end, best[stage]);
  });
  return best.back().back();
}

// The time of the slowest stage of the best cut; kNever when none fits.
std::int64_t least_bottleneck(const Chain& chain) {
  return minimax(chain, [&](int stage, int end, const auto& previous) {
    std::int64_t best = kNever;
    for_each_start(chain, stage, end, [&](int first, StageLoad load) {
      if (load.compute >= best || load.bytes > chain.budget[stage]) {
        return false;
      }
      const std::int64_t time =
          load.compute + chain.cut[first] + chain.cut[end];
      best = std::min(best, std::max(previous[first], time));
      return true;
    });
    return best;
  });
}

// What is minimised among the cuts with the least bottleneck.
struct Total {
  std::int64_t time = kNever;
  __int128 squares = 0;
};

bool as_good(const Total& a, const Total& b) {
  return a.time != b.time ? a.time < b.time : a.squares <= b.squares;
}

// The best way to end a run of stages: what it costs, where the last begins.
struct Choice {
  Total total;
  int first = 0;
};

Choice best_choice(const Chain& chain,
                   int stage,
                   int end,
                   std::int64_t limit,
                   const std::vector<Choice>& previous) {
  Choice best;
  for_each_start(chain, stage, end, [&](int first, StageLoad load) {
    if (load.compute > limit || load.bytes > chain.budget[stage]) {
      return false;
    }
    const std::int64_t time = load.compute + chain.cut[first] + chain.cut[end];
    const Total& before = previous[first].total;
    if (time > limit || before.time == kNever) {
      return true;
    }
    const Total total{before.time + time,
                      before.squares + static_cast<__int128>(time) * time};
    // Of equals the last stage gets most: the first stages are short of memory.
    if (as_good(total, best.total)) {
      best = {total, first};
    }
    return true;
  });
  return best;
}

// The best cut among those without a stage slower than `limit`.
std::vector<int> least_total(const Chain& chain, std::int64_t limit) {
  std::vector<std::vector<Choice>> best(chain.stages + 1,
                                        std::vector<Choice>(chain.layers + 1));
  best[0][0].total = {0, 0};
  for_each_end(chain, [&](int stage, int end) {
    best[stage + 1][end] = best_choice(chain, stage, end, limit, best[stage]);
  });
  std::vector<int> first(chain.stages);
  int end = chain.layers;
  for (int stage = chain.stages - 1; stage >= 0; --stage) {
    first[stage] = best[stage + 1][end].first;
    end = first[stage];
  }
  return first;
}

}  // namespace

std::optional<std::vector<int>> best_cut(const CutProblem& problem) {
  if (problem.devices.size() > problem.layers.size()) {
    return std::nullopt;
  }
  const Chain chain(problem);
  const std::int64_t bottleneck = least_bottleneck(chain);
  if (bottleneck == kNever) {
    return std::nullopt;
  }
  return least_total(chain, bottleneck);
}

Bytes stage_memory(const CutProblem& problem, int stage, int first, int end) {
  Bytes sum;
  Bytes working;
  for (int i = first; i < end; ++i) {
    sum += kept(problem.layers[i], problem.devices[stage]);
    working = std::max(working, problem.layers[i].working);
  }
  return sum + working;
}

Bytes smallest_budget(const CutProblem& problem) {
  assert(problem.devices.size() <= problem.layers.size());
  const Chain chain(problem);
  return {minimax(chain, [&](int stage, int end, const auto& previous) {
    std::int64_t best = kNever;
    for_each_start(chain, stage, end, [&](int first, StageLoad load) {
      best = std::min(best, std::max(previous[first], load.bytes));
      return load.bytes < best;
    });
    return best;
  })};
}

}  // namespace cleave
