#include "cleave/schedule/lending_limits.h"

#include <gtest/gtest.h>

#include "cleave/schedule/memory.h"
#include "cleave/schedule/registry.h"
#include "cleave/schedule/simulate_lending.h"

namespace cleave {
namespace {

constexpr int kRanks = 4;
constexpr Bytes kBeside{200};

// A schedule whose rows may need a quarter more than where all is done in
// order, and something for what waits.
struct Lent {
  ScheduleCosts costs;
  std::vector<SharedRow> rows;
  std::vector<Bytes> in_order;  // without what waits
};

Lent lent(const std::string& name) {
  const Schedule schedule = make_schedule(
      name,
      {.ranks = kRanks,
       .stages_per_rank = name == "zb-v" || name == "interleaved" ? 2 : 1,
       .microbatches = 8});
  const StageBytes bytes{.kept = {100},
                         .kept_for_weights = {60},
                         .forward_need = {130},
                         .backward_need = {40},
                         .whole_need = {30},
                         .first_whole_need = {50},
                         .weight_need = {12},
                         .first_weight_need = {27},
                         .gradients = {50},
                         .leaving = {7},
                         .returning = {9},
                         .shared = {4}};
  const std::vector<StageBytes> stages(schedule.stages, bytes);
  Lent lent{.in_order = peak_bytes(schedule, stages)};
  for (int stage = 0; stage < schedule.stages; ++stage) {
    lent.costs.stages.push_back(
        {Seconds{1}, Seconds{1.1}, Seconds{stage == 1 ? 1.2 : 0.8}});
    lent.costs.updates.push_back(Seconds{0.3});
  }
  lent.costs.forward_message.resize(schedule.stages - 1, Seconds{0.01});
  lent.costs.backward_message = lent.costs.forward_message;
  std::vector<Bytes> bounds;
  for (const Bytes alone : lent.in_order) {
    bounds.push_back({alone.value * 11 / 10});
  }
  lent.rows = shared_rows(schedule, stages, bounds);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    lent.rows[rank].limit = {lent.in_order[rank].value * 5 / 4 + 60};
  }
  return lent;
}

std::vector<Bytes> limits_of(const Lent& wide) {
  return lending_limits(wide.rows,
                        wide.costs,
                        wide.in_order,
                        std::vector<Bytes>(kRanks, kBeside));
}

std::vector<SharedRow> limited(std::vector<SharedRow> rows,
                               const std::vector<Bytes>& limits) {
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank].limit = limits[rank];
  }
  return rows;
}

class LendingLimits : public testing::TestWithParam<std::string> {};

TEST_P(LendingLimits, cost_no_time_and_are_kept) {
  const Lent wide = lent(GetParam());
  const std::vector<Bytes> limits = limits_of(wide);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_LE(limits[rank], wide.rows[rank].limit) << rank;
  }
  const std::vector<SharedRow> rows = limited(wide.rows, limits);
  // Undisturbed, and in ways that were not looked at.
  std::vector<std::optional<Disturbance>> ways{std::nullopt};
  for (unsigned number = 1000; number < 1010; ++number) {
    ways.emplace_back(Disturbance{number});
  }
  Seconds with;
  Seconds without;
  for (const std::optional<Disturbance>& way : ways) {
    const LentSteps steps = simulate_lent_steps(rows, wide.costs, way);
    with += steps.period;
    without += simulate_lent_steps(wide.rows, wide.costs, way).period;
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_LE(steps.most[rank], limits[rank]) << rank;
      EXPECT_GE((steps.most[rank] + kBeside).value,
                0.8 * static_cast<double>((limits[rank] + kBeside).value))
          << rank;
    }
  }
  EXPECT_LE(with, 1.02 * without);
}

INSTANTIATE_TEST_SUITE_P(
    Of,
    LendingLimits,
    testing::Values("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"),
    [](const auto& tested) {
      std::string name = tested.param;
      std::ranges::replace(name, '-', '_');
      return name;
    });

// It takes a B where it would wait for an F, and so never keeps all.
TEST(LendingLimits, of_the_last_rank_are_below_what_it_needs_in_order) {
  const Lent wide = lent("gpipe");
  const std::vector<Bytes> limits = limits_of(wide);
  EXPECT_LT(limits.back(), wide.in_order.back());
  EXPECT_GE(limits.front(), wide.in_order.front());
}

TEST(Disturbance, is_the_same_for_the_same_number) {
  const Lent wide = lent("zb-h1");
  const auto period = [&](std::optional<Disturbance> disturbance) {
    return simulate_lent_steps(wide.rows, wide.costs, disturbance).period;
  };
  EXPECT_EQ(period(Disturbance{1}), period(Disturbance{1}));
  EXPECT_NE(period(Disturbance{1}), period(Disturbance{2}));
  EXPECT_NE(period(Disturbance{1}), period({}));
}

}  // namespace
}  // namespace cleave
