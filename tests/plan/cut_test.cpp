#include "cleave/plan/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace cleave {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// A chain of layers that cost only time, on equal devices.
CutProblem chain(const std::vector<double>& times, int stages) {
  CutProblem problem;
  for (const double time : times) {
    problem.layers.push_back({.time = {time}});
  }
  problem.cuts.resize(times.size() - 1);
  problem.devices.resize(stages);
  return problem;
}

// The reference: every cut there is, judged with whole numbers. The problems
// below have times that every speed divides, so no rounding is involved.
class BruteForce {
 public:
  using Score = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  explicit BruteForce(const CutProblem& problem) : problem_(problem) {}

  // The slowest stage, the sum and the sum of squares, in units of the test.
  Score score(const std::vector<int>& first) const {
    Score result{0, 0, 0};
    auto& [slowest, sum, squares] = result;
    for (std::size_t stage = 0; stage < first.size(); ++stage) {
      const std::int64_t time = stage_time(first, stage);
      slowest = std::max(slowest, time);
      sum += time;
      squares += time * time;
    }
    return result;
  }

  bool fits(const std::vector<int>& first) const {
    for (std::size_t stage = 0; stage < first.size(); ++stage) {
      const std::int64_t budget = problem_.devices[stage].memory.value;
      if (budget != 0 && stage_bytes(first, stage) > budget) {
        return false;
      }
    }
    return true;
  }

  // The best score of a cut that fits; slowest is kNone when none does.
  Score best() const {
    Score best{kNone, 0, 0};
    for_each_cut([&](const std::vector<int>& first) {
      if (fits(first)) {
        best = std::min(best, score(first));
      }
    });
    return best;
  }

  // Microseconds: what the times below are whole numbers of.
  static std::int64_t units(Seconds time) {
    return std::llround(time.value * 1e6);
  }

 private:
  int end(const std::vector<int>& first, std::size_t stage) const {
    return stage + 1 < first.size() ? first[stage + 1]
                                    : static_cast<int>(problem_.layers.size());
  }

  std::int64_t stage_time(const std::vector<int>& first,
                          std::size_t stage) const {
    double compute = 0;
    for (int i = first[stage]; i < end(first, stage); ++i) {
      compute += problem_.layers[i].time.value;
    }
    std::int64_t time = units({compute / problem_.devices[stage].speed});
    if (stage > 0) {
      time += units(problem_.cuts[first[stage] - 1]);
    }
    if (stage + 1 < first.size()) {
      time += units(problem_.cuts[end(first, stage) - 1]);
    }
    return time;
  }

  std::int64_t stage_bytes(const std::vector<int>& first,
                           std::size_t stage) const {
    std::int64_t kept = 0;
    std::int64_t working = 0;
    for (int i = first[stage]; i < end(first, stage); ++i) {
      const CutLayer& layer = problem_.layers[i];
      kept += layer.fixed.value +
              problem_.devices[stage].in_flight * layer.activations.value;
      working = std::max(working, layer.working.value);
    }
    return kept + working;
  }

  void for_each_cut(
      const std::function<void(const std::vector<int>&)>& visit) const {
    std::vector<int> first{0};
    extend(first, visit);
  }

  void extend(std::vector<int>& first,
              const std::function<void(const std::vector<int>&)>& visit) const {
    if (first.size() == problem_.devices.size()) {
      visit(first);
      return;
    }
    for (int next = first.back() + 1;
         next < static_cast<int>(problem_.layers.size());
         ++next) {
      first.push_back(next);
      extend(first, visit);
      first.pop_back();
    }
  }

  const CutProblem& problem_;
};

class RandomProblems {
 public:
  CutProblem next() {
    const int stages = pick(1, 5);
    const int layers = pick(stages, 12);
    const int spread = pick(0, 1) == 0 ? 3 : 1000;  // 3: many ties
    const bool cuts_cost = pick(0, 1) == 1;
    const bool limited = pick(0, 2) > 0;
    CutProblem problem;
    for (int i = 0; i < layers; ++i) {
      problem.layers.push_back({.time = {12e-6 * pick(0, spread)},
                                .fixed = {pick(0, 100)},
                                .activations = {pick(0, 50)},
                                .working = {pick(0, 80)}});
    }
    for (int i = 0; i + 1 < layers; ++i) {
      problem.cuts.push_back({cuts_cost ? 1e-6 * pick(0, 4 * spread) : 0});
    }
    // Around what one stage of an even cut needs, so that many do not fit.
    const int fair = 30 + layers * 130 / stages;
    for (int i = 0; i < stages; ++i) {
      problem.devices.push_back(
          {.speed = speed(),
           .memory = {limited ? pick(fair / 2, 2 * fair) : 0},
           .in_flight = stages - i});
    }
    return problem;
  }

 private:
  int pick(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  double speed() {
    constexpr std::array kSpeeds{0.5, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0};
    return kSpeeds[pick(0, static_cast<int>(kSpeeds.size()) - 1)];
  }

  std::mt19937 random_{20240607};
};

TEST(Cut, equals_brute_force_on_random_chains) {
  RandomProblems problems;
  int without_a_fit = 0;
  for (int i = 0; i < 10000; ++i) {
    const CutProblem problem = problems.next();
    const BruteForce reference(problem);
    const BruteForce::Score best = reference.best();
    const auto cut = best_cut(problem);
    ASSERT_EQ(cut.has_value(), std::get<0>(best) != kNone) << "problem " << i;
    if (!cut) {
      ++without_a_fit;
      continue;
    }
    ASSERT_EQ(cut->size(), problem.devices.size());
    EXPECT_TRUE(reference.fits(*cut)) << "problem " << i;
    ASSERT_EQ(reference.score(*cut), best) << "problem " << i;
  }
  EXPECT_GT(without_a_fit, 1000);  // the sample must contain both kinds
  EXPECT_LT(without_a_fit, 5000);
}

TEST(Cut, finds_the_least_bottleneck_of_a_chain_known_by_hand) {
  // 1 2 3 4 5 | 6 7 | 8 9: the classic; its slowest stage takes 17.
  EXPECT_EQ(best_cut(chain({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3)),
            (std::vector<int>{0, 5, 7}));
}

TEST(Cut, one_stage_takes_everything) {
  EXPECT_EQ(best_cut(chain({3, 1, 2}, 1)), (std::vector<int>{0}));
}

TEST(Cut, as_many_stages_as_layers_get_one_each) {
  EXPECT_EQ(best_cut(chain({3, 1, 2}, 3)), (std::vector<int>{0, 1, 2}));
}

TEST(Cut, more_stages_than_layers_have_no_cut) {
  EXPECT_EQ(best_cut(chain({3, 1, 2}, 4)), std::nullopt);
}

TEST(Cut, equal_layers_are_spread_evenly_with_the_long_stages_last) {
  // 2 2 3 3, not 1 3 3 3: as slow, but less even.
  EXPECT_EQ(best_cut(chain(std::vector<double>(10, 0.1), 4)),
            (std::vector<int>{0, 2, 4, 7}));
}

TEST(Cut, an_expensive_cut_is_avoided) {
  CutProblem problem = chain({4, 4, 4, 4}, 2);
  EXPECT_EQ(best_cut(problem), (std::vector<int>{0, 2}));
  problem.cuts[1] = {5};  // 8 + 5 > 12: worse than one layer against three
  EXPECT_EQ(best_cut(problem), (std::vector<int>{0, 1}));
}

TEST(Cut, of_cuts_with_the_same_bottleneck_the_cheaper_one_is_taken) {
  CutProblem problem = chain({10, 1, 1, 6}, 2);
  problem.cuts = {{1}, {0}, {9}};
  // 10 + 1 | 8 + 1 and 11 | 7: the same bottleneck, less in sum.
  EXPECT_EQ(best_cut(problem), (std::vector<int>{0, 2}));
}

TEST(Cut, a_faster_device_gets_more) {
  CutProblem problem = chain(std::vector<double>(8, 1), 2);
  problem.devices[1].speed = 3;
  EXPECT_EQ(best_cut(problem), (std::vector<int>{0, 2}));
}

TEST(Cut, memory_can_force_a_slower_cut) {
  CutProblem problem = chain({1, 1, 1, 1}, 2);
  for (CutLayer& layer : problem.layers) {
    layer.activations = {10};
    layer.working = {5};
  }
  problem.devices[0] = {.memory = {45}, .in_flight = 2};
  problem.devices[1] = {.memory = {45}, .in_flight = 1};
  EXPECT_EQ(best_cut(problem), (std::vector<int>{0, 2}));
  problem.devices[0].memory = {44};  // two layers in flight twice need 45
  EXPECT_EQ(best_cut(problem), (std::vector<int>{0, 1}));
  problem.devices[1].memory = {34};  // the other three need 35
  EXPECT_EQ(best_cut(problem), std::nullopt);
}

TEST(Cut, a_thousand_layers_over_64_stages_take_milliseconds) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> time(1e-3, 2e-2);
  CutProblem problem;
  for (int i = 0; i < 1000; ++i) {
    problem.layers.push_back({.time = {time(random)},
                              .fixed = {1 << 20},
                              .activations = {1 << 16},
                              .working = {1 << 18}});
  }
  problem.cuts.assign(999, Seconds{5e-6});
  for (int i = 0; i < 64; ++i) {
    problem.devices.push_back({.in_flight = 64 - i});
  }
  const auto start = std::chrono::steady_clock::now();
  const auto cut = best_cut(problem);
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(taken.count()));
  std::printf("cut: %.1f ms\n", taken.count() * 1e3);
  ASSERT_TRUE(cut);
  EXPECT_LT(taken.count(), 10);
}

}  // namespace
}  // namespace cleave
