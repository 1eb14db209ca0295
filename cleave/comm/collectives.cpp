#include "cleave/comm/collectives.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "cleave/error.h"

namespace cleave {
namespace {

// Every operation has tags of its own: a rank may be one operation ahead.
enum Kind { kParts, kSums, kGather, kBroadcast, kExchange, kArrived, kGo };

Tag tag_of(Kind kind, Channel channel = Channel::collective) {
  return {channel, kind, {}};
}

// Calls with the others, the next one first, so that not all call one.
template <class Call>
void for_others(const Transport& ranks, const Call& call) {
  for (int step = 1; step < ranks.ranks(); ++step) {
    call(Rank{(ranks.rank().value + step) % ranks.ranks()});
  }
}

}  // namespace

Section section_of(std::int64_t numbers, Rank rank, int ranks) {
  const std::int64_t each = (numbers + ranks - 1) / ranks;
  const std::int64_t first = std::min(numbers, rank.value * each);
  return {first, std::min(each, numbers - first)};
}

Sum::Sum(Transport& ranks, const at::Tensor& values, int index)
    : ranks_(ranks),
      parts_{Channel::collective, kParts, {index}},
      sums_{Channel::collective, kSums, {index}} {
  if (!values.is_contiguous()) {
    fail("only contiguous tensors can be summed over ranks",
         "Give a contiguous one.");
  }
  values_ = values.detach().view({-1});
}

at::Tensor Sum::part(Rank rank) const {
  const Section own = section_of(values_.numel(), rank, ranks_.ranks());
  return values_.narrow(0, own.first, own.count);
}

void Sum::begin() {
  for_others(ranks_,
             [&](Rank other) { ranks_.send(other, parts_, {part(other)}); });
}

at::Tensor Sum::scatter() {
  const torch::NoGradGuard no_grad;
  const at::ScalarType type = values_.scalar_type();
  at::Tensor sum;
  for (Rank rank; rank.value < ranks_.ranks(); ++rank.value) {
    const at::Tensor next =
        rank == ranks_.rank() ? part(rank) : ranks_.receive(rank, parts_).at(0);
    if (sum.defined()) {
      sum.add_(next);
    } else {
      sum = next.to(type == at::kBFloat16 ? at::kFloat : type,
                    /*non_blocking=*/false,
                    /*copy=*/true);
    }
  }
  return sum.to(type);
}

// A rank has read its section of our values when its sum comes, so the sum can
// take their place.
void Sum::finish() {
  if (ranks_.ranks() == 1) {
    return;
  }
  const torch::NoGradGuard no_grad;
  const at::Tensor own = scatter();
  for_others(ranks_, [&](Rank other) { ranks_.send(other, sums_, {own}); });
  part(ranks_.rank()).copy_(own);
  for_others(ranks_, [&](Rank other) {
    part(other).copy_(ranks_.receive(other, sums_).at(0));
  });
}

void all_reduce(Transport& ranks, const at::Tensor& values) {
  Sum sum(ranks, values);
  sum.begin();
  sum.finish();
}

at::Tensor reduce_scatter(Transport& ranks, const at::Tensor& values) {
  Sum sum(ranks, values);
  sum.begin();
  return sum.scatter();
}

Message all_gather(Transport& ranks, const at::Tensor& own, Channel channel) {
  Message all(ranks.ranks());
  for_others(ranks, [&](Rank other) {
    ranks.send(other, tag_of(kGather, channel), {own});
  });
  all[ranks.rank().value] = own;
  for_others(ranks, [&](Rank other) {
    all[other.value] = ranks.receive(other, tag_of(kGather, channel)).at(0);
  });
  return all;
}

Message broadcast(Transport& ranks,
                  Message message,
                  Rank root,
                  Channel channel) {
  if (ranks.rank() != root) {
    return ranks.receive(root, tag_of(kBroadcast, channel));
  }
  for_others(ranks, [&](Rank other) {
    ranks.send(other, tag_of(kBroadcast, channel), message);
  });
  return message;
}

Message all_to_all(Transport& ranks, Message parts) {
  if (std::ssize(parts) != ranks.ranks()) {
    fail("an exchange needs one part per rank: " +
             std::to_string(ranks.ranks()) + ", not " +
             std::to_string(parts.size()),
         "Give an empty tensor to ranks that get nothing.");
  }
  for_others(ranks, [&](Rank other) {
    ranks.send(other, tag_of(kExchange), {parts[other.value]});
  });
  for_others(ranks, [&](Rank other) {
    parts[other.value] = ranks.receive(other, tag_of(kExchange)).at(0);
  });
  return parts;
}

void barrier(Transport& ranks) {
  constexpr Rank kFirst{0};
  if (ranks.rank() != kFirst) {
    ranks.send(kFirst, tag_of(kArrived), {});
    ranks.receive(kFirst, tag_of(kGo));
    return;
  }
  for_others(ranks,
             [&](Rank other) { ranks.receive(other, tag_of(kArrived)); });
  for_others(ranks, [&](Rank other) { ranks.send(other, tag_of(kGo), {}); });
}

}  // namespace cleave
