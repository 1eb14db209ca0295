#include "cleave/plan/cut.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
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

  // One device of the chain: what its stage would cost.
  struct Stage {
    std::vector<std::int64_t>
        before;                 // [i]: picoseconds of the layers before i
    std::vector<int> earliest;  // [end]: with which layer it can begin at most,
                                // for its memory's sake; `end` when none fits
  };

  int layers;
  std::vector<Stage> stages;
  std::vector<std::int64_t> cut;  // [i]: before layer i; zero at the ends
};

// [end]: the first layer with which a stage that ends there fits the budget.
std::vector<int> earliest_starts(const CutProblem& problem,
                                 const CutDevice& device) {
  const int layers = static_cast<int>(problem.layers.size());
  std::vector<int> earliest(layers + 1, 0);
  if (device.memory.value == 0) {
    return earliest;
  }
  Bytes sum;
  std::deque<int> largest;  // by working memory, falling; the first is the most
  int first = 0;
  for (int end = 1; end <= layers; ++end) {
    const CutLayer& layer = problem.layers[end - 1];
    sum += kept(layer, device);
    while (!largest.empty() &&
           problem.layers[largest.back()].working <= layer.working) {
      largest.pop_back();
    }
    largest.push_back(end - 1);
    while (first < end &&
           sum + problem.layers[largest.front()].working > device.memory) {
      sum = sum - kept(problem.layers[first], device);
      ++first;
      if (largest.front() < first) {
        largest.pop_front();
      }
    }
    earliest[end] = first;
  }
  return earliest;
}

Chain::Chain(const CutProblem& problem)
    : layers(static_cast<int>(problem.layers.size())),
      cut(problem.layers.size() + 1) {
  assert(problem.cuts.size() + 1 == problem.layers.size());
  for (std::size_t i = 0; i < problem.cuts.size(); ++i) {
    cut[i + 1] = to_picoseconds(problem.cuts[i]);
  }
  for (const CutDevice& device : problem.devices) {
    Stage& stage = stages.emplace_back();
    stage.before.push_back(0);
    for (const CutLayer& layer : problem.layers) {
      stage.before.push_back(stage.before.back() +
                             to_picoseconds(layer.time / device.speed));
    }
    stage.earliest = earliest_starts(problem, device);
  }
}

// The runs of layers that can be one stage and end before layer `end`, from the
// shortest, first = end - 1, to the longest.
struct Runs {
  Runs(const Chain& chain, int stage, int end_of_all)
      : before(chain.stages[stage].before.data()),
        cut(chain.cut.data()),
        end(end_of_all),
        first(std::max(stage, chain.stages[stage].earliest[end])) {}

  // Only grows as the run gets longer.
  std::int64_t compute(int from) const { return before[end] - before[from]; }
  std::int64_t time(int from) const {
    return compute(from) + cut[from] + cut[end];
  }

  const std::int64_t* before;
  const std::int64_t* cut;
  int end;
  int first;  // of the longest run; leaves a layer for every stage before
};

// Calls visit(stage, end) for every end a stage can have, stage by stage.
template <typename Visit>
void for_each_end(int layers, int stages, Visit visit) {
  for (int stage = 0; stage < stages; ++stage) {
    const int later = stages - stage - 1;  // a layer each
    const int last = layers - later;
    for (int end = later == 0 ? last : stage + 1; end <= last; ++end) {
      visit(stage, end);
    }
  }
}

// The least possible largest load of a stage. better(stage, end, previous)
// gives it for the first `stage` + 1 stages over the first `end` layers, from
// the results for one stage less.
template <typename Better>
std::int64_t minimax(int layers, int stages, Better better) {
  // [stage][end]: of the first `stage` stages over the first `end` layers.
  std::vector<std::vector<std::int64_t>> best(
      stages + 1, std::vector<std::int64_t>(layers + 1, kNever));
  best[0][0] = 0;
  for_each_end(layers, stages, [&](int stage, int end) {
    best[stage + 1][end] = better(stage, end, best[stage]);
  });
  return best.back().back();
}

// The time of the slowest stage of the best cut; kNever when none fits.
std::int64_t least_bottleneck(const Chain& chain) {
  const int stages = static_cast<int>(chain.stages.size());
  return minimax(
      chain.layers, stages, [&](int stage, int end, const auto& previous) {
        const Runs runs(chain, stage, end);
        std::int64_t best = kNever;
        for (int first = end - 1; first >= runs.first; --first) {
          if (runs.compute(first) >= best) {
            break;
          }
          best = std::min(best, std::max(previous[first], runs.time(first)));
        }
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

Choice best_choice(const Runs& runs,
                   std::int64_t limit,
                   const std::vector<Choice>& previous) {
  Choice best;
  for (int first = runs.end - 1; first >= runs.first; --first) {
    if (runs.compute(first) > limit) {
      break;
    }
    const std::int64_t time = runs.time(first);
    const Total& before = previous[first].total;
    if (time > limit || before.time == kNever ||
        before.time + time > best.total.time) {
      continue;
    }
    const Total total{before.time + time,
                      before.squares + static_cast<__int128>(time) * time};
    // Of equals the last stage gets most: the first stages are short of memory.
    if (as_good(total, best.total)) {
      best = {total, first};
    }
  }
  return best;
}

// The best cut among those without a stage slower than `limit`.
std::vector<int> least_total(const Chain& chain, std::int64_t limit) {
  const int stages = static_cast<int>(chain.stages.size());
  std::vector<std::vector<Choice>> best(stages + 1,
                                        std::vector<Choice>(chain.layers + 1));
  best[0][0].total = {0, 0};
  for_each_end(chain.layers, stages, [&](int stage, int end) {
    best[stage + 1][end] =
        best_choice(Runs(chain, stage, end), limit, best[stage]);
  });
  std::vector<int> first(stages);
  int end = chain.layers;
  for (int stage = stages - 1; stage >= 0; --stage) {
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

}  // namespace cleave
