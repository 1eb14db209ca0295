#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "cleave/schedule/simulate.h"

namespace cleave {

// Profiled times in milliseconds and the bubbles that they give: Qi et al.,
// Zero Bubble Pipeline Parallelism (2023), tables 9 and 5. A bubble there is
// the share that the longest rank, from its first start to its end, waits.
struct PublishedRow {
  int ranks;
  int microbatches;
  int stages_per_rank;  // where interleaved
  double forward;
  double backward;
  double weight;
  double message;
  double one_f_one_b;
  double interleaved;
  double zb_h1;
  double zb_h2;
  double searched_1p;  // in the memory of as many microbatches as ranks
  double searched_2p;  // in twice as much

  // Of a rank's work cut evenly into so many stages.
  ScheduleCosts costs(int stages_per_rank_wanted) const {
    const int n = stages_per_rank_wanted;
    const std::size_t stages = static_cast<std::size_t>(ranks) * n;
    const StageCost cost{.forward = {forward / n / 1e3},
                         .backward = {backward / n / 1e3},
                         .weight = {weight / n / 1e3},
                         .values = {message / 1e3},
                         .gradients = {message / 1e3}};
    return {std::vector<StageCost>(stages, cost)};
  }

  // What one rank computes.
  Seconds work() const {
    return microbatches * Seconds{(forward + backward + weight) / 1e3};
  }
};

// clang-format off
inline constexpr std::array<PublishedRow, 12> kPublished{{
    {8, 24, 3, 18.522, 18.086, 9.337, 0.601,
     0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433},
    {8, 32, 3, 18.513, 18.086, 9.331, 0.626,
     0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039},
    {8, 64, 3, 18.546, 18.097, 9.321, 0.762,
     0.1240, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026},
    {8, 24, 4, 29.718, 29.444, 19.927, 0.527,
     0.2347, 0.0808, 0.1323, 0.0698, 0.1323, 0.0029},
    {8, 32, 4, 29.802, 29.428, 19.530, 0.577,
     0.1898, 0.0628, 0.1045, 0.0559, 0.1045, 0.0022},
    {8, 64, 4, 29.935, 29.621, 19.388, 0.535,
     0.1091, 0.0320, 0.0554, 0.0294, 0.0554, 0.0010},
    {16, 48, 3, 11.347, 11.248, 8.132, 0.377,
     0.2552, 0.1104, 0.1397, 0.0672, 0.1397, 0.0066},
    {16, 64, 3, 11.307, 11.254, 8.101, 0.379,
     0.2082, 0.0852, 0.1088, 0.0516, 0.1088, 0.0054},
    {16, 128, 3, 11.325, 11.308, 8.109, 0.378,
     0.1251, 0.0445, 0.0576, 0.0266, 0.0576, 0.0028},
    {32, 96, 2, 10.419, 10.207, 7.715, 0.408,
     0.2646, 0.1493, 0.1421, 0.0641, 0.1421, 0.0038},
    {32, 128, 2, 10.408, 10.204, 7.703, 0.408,
     0.2168, 0.1164, 0.1106, 0.0490, 0.1106, 0.0029},
    {32, 256, 2, 10.402, 10.248, 7.698, 0.460,
     0.1352, 0.0624, 0.0594, 0.0257, 0.0594, 0.0018},
}};
// clang-format on

// As the paper measures it.
inline double published_bubble(const Timeline& timeline, Seconds work) {
  Seconds longest;
  for (const std::vector<Span>& row : timeline.rows) {
    longest = std::max(longest, row.back().end - row.front().start);
  }
  return (longest - work) / longest;
}

}  // namespace cleave
