#include "cleave/comm/link_speed.h"

#include <torch/types.h>

#include <algorithm>
#include <chrono>

#include "cleave/comm/collectives.h"

namespace cleave {
namespace {

// As training sends them: those of other channels may wait longer.
constexpr Tag kTag{Channel::values, /*index=*/100, {}};
constexpr std::int64_t kSmall = 8;        // numbers
constexpr std::int64_t kLarge = 1 << 18;  // numbers: 1 MiB
constexpr int kRounds = 20;

// There and back, halved; the best of some.
Seconds one_way(Transport& ranks, Rank other, bool begins, std::int64_t size) {
  const at::Tensor numbers = torch::zeros({size});
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    if (begins) {
      ranks.send(other, kTag, {numbers});
    }
    ranks.receive(other, kTag);
    if (!begins) {
      ranks.send(other, kTag, {numbers});
    }
    const std::chrono::duration<double> spent =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / 2);
  }
  return {best};
}

// Of all ranks.
double most(Transport& ranks, double own) {
  double found = own;
  for (const at::Tensor& other :
       all_gather(ranks, torch::tensor(own, at::kDouble), Channel::agreement)) {
    found = std::max(found, other.item<double>());
  }
  return found;
}

}  // namespace

MessageSpeed measure_messages(Transport& ranks) {
  Seconds small;
  Seconds large;
  const Rank own = ranks.rank();
  for (int first = 0; first + 1 < ranks.ranks(); ++first) {
    // One pair after the other, so that they do not disturb each other.
    if (own.value == first || own.value == first + 1) {
      const bool begins = own.value == first;
      const Rank other{begins ? first + 1 : first};
      small = std::max(small, one_way(ranks, other, begins, kSmall));
      large = std::max(large, one_way(ranks, other, begins, kLarge));
    }
  }
  const double latency = most(ranks, small.value);
  const double time = std::max(most(ranks, large.value) - latency, 1e-6);
  MessageSpeed speed;
  if (ranks.ranks() > 1) {
    speed.latency = {latency};
    speed.bandwidth = static_cast<double>(kLarge) * sizeof(float) / time;
    // Every number crosses twice.
    speed.sum_bandwidth = std::min(speed.sum_bandwidth, speed.bandwidth / 2);
  }
  return speed;
}

}  // namespace cleave
