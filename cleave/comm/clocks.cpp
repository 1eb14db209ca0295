#include "cleave/comm/clocks.h"

#include <torch/types.h>

#include <chrono>
#include <cmath>
#include <limits>

namespace cleave {
namespace {

constexpr int kQuestions = 8;
constexpr Rank kAsks{0};
constexpr Tag kQuestion{Channel::clock, 0, {}};
constexpr Tag kAnswer{Channel::clock, 1, {}};
constexpr Tag kFound{Channel::clock, 2, {}};

void answer(Transport& ranks, const std::function<Seconds()>& clock) {
  for (int i = 0; i < kQuestions; ++i) {
    ranks.receive(kAsks, kQuestion);
    ranks.send(kAsks, kAnswer, {torch::tensor(clock().value, at::kDouble)});
  }
}

// The answer that came back fastest was given in the middle of its way, or
// nearly so.
Seconds lead_of(Transport& ranks,
                Rank rank,
                const std::function<Seconds()>& clock) {
  Seconds shortest{std::numeric_limits<double>::infinity()};
  Seconds lead;
  for (int i = 0; i < kQuestions; ++i) {
    const Seconds asked = clock();
    ranks.send(rank, kQuestion, {});
    const auto theirs = ranks.receive(rank, kAnswer).at(0).item<double>();
    const Seconds way = clock() - asked;
    if (way < shortest) {
      shortest = way;
      lead = Seconds{theirs - asked.value - way.value / 2};
    }
  }
  return std::abs(lead.value) <= shortest.value / 2 ? Seconds{} : lead;
}

}  // namespace

std::vector<Seconds> clock_leads(Transport& ranks,
                                 const std::function<Seconds()>& clock) {
  std::vector<double> leads(ranks.ranks());
  if (ranks.rank() == kAsks) {
    for (Rank rank{1}; rank.value < ranks.ranks(); ++rank.value) {
      leads[rank.value] = lead_of(ranks, rank, clock).value;
    }
    for (Rank rank{1}; rank.value < ranks.ranks(); ++rank.value) {
      ranks.send(rank, kFound, {torch::tensor(leads, at::kDouble)});
    }
  } else {
    answer(ranks, clock);
    const Message found = ranks.receive(kAsks, kFound);
    const auto values = found.at(0).accessor<double, 1>();
    for (std::size_t i = 0; i < leads.size(); ++i) {
      leads[i] = values[static_cast<std::int64_t>(i)];
    }
  }
  std::vector<Seconds> seconds;
  seconds.reserve(leads.size());
  for (const double lead : leads) {
    seconds.push_back({lead});
  }
  return seconds;
}

}  // namespace cleave
