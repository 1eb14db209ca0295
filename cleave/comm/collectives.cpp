#include "cleave/comm/collectives.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "cleave/error.h"

namespace cleave {
namespace {

// Every operation has tags of its own: a rank may be one operation ahead.
enum class Kind {
  parts,
  sums,
  taken,
  gather,
  gather_lists,
  broadcast,
  exchange,
  arrived,
  go,
};

Tag tag_of(Kind kind, Channel channel = Channel::collective) {
  return {channel, static_cast<int>(kind), {}};
}

Tag tag_of(Kind kind, int index) {
  return {Channel::collective, static_cast<int>(kind), {index}};
}

// Calls with the others, the next one first, so that not all call one.
template <class Call>
void for_others(const Transport& ranks, const Call& call) {
  for (int step = 1; step < ranks.ranks(); ++step) {
    call(Rank{(ranks.rank().value + step) % ranks.ranks()});
  }
}

at::Tensor section(const at::Tensor& flat, Rank rank, int ranks) {
  const Section part = section_of(flat.numel(), rank, ranks);
  return flat.narrow(0, part.first, part.count);
}

// Adds tensors up; bf16 in fp32. The first one is read when the second comes.
class Adder {
 public:
  // `room`: one of the tensors to come. From then on the sum is made in its
  // memory, unless it is bf16; undefined: in memory of its own.
  explicit Adder(at::Tensor room = {})
      : room_(has_wider_sums(room) ? at::Tensor() : std::move(room)) {}

  void add(const at::Tensor& next) {
    if (!next.defined()) {
      return;
    }
    if (sum_.defined() && !is_room(next)) {
      sum_.add_(next);
    } else if (!sum_.defined() && !first_.defined()) {
      first_ = next;
    } else {
      const at::Tensor before = sum_.defined() ? sum_ : wide(first_);
      sum_ = is_room(first_) || is_room(next) ? at::add_out(room_, before, next)
                                              : before.add(next);
    }
  }

  // In memory that is its own, or the room.
  at::Tensor sum() const {
    return sum_.defined() || !first_.defined() ? sum_
           : is_room(first_)                   ? first_
                                               : wide(first_).clone();
  }

 private:
  static bool has_wider_sums(const at::Tensor& values) {
    return values.defined() && values.scalar_type() == at::kBFloat16;
  }

  static at::Tensor wide(const at::Tensor& values) {
    return has_wider_sums(values) ? values.to(at::kFloat) : values;
  }

  bool is_room(const at::Tensor& values) const {
    return room_.defined() && values.is_same(room_);
  }

  at::Tensor room_;
  at::Tensor first_;
  at::Tensor sum_;
};

// Puts the sections of a tensor, one per rank, into its memory; into new memory
// where it has none. None is defined, or all are.
void join(const Message& sections, at::Tensor& flat) {
  if (!sections.front().defined()) {
    return;
  }
  if (!flat.defined()) {
    flat = at::cat(sections);
    return;
  }
  const auto ranks = static_cast<int>(sections.size());
  for (Rank rank; rank.value < ranks; ++rank.value) {
    const at::Tensor place = section(flat, rank, ranks);
    if (!place.is_alias_of(sections[rank.value])) {  // it came to its place
      place.copy_(sections[rank.value]);
    }
  }
}

}  // namespace

Section section_of(std::int64_t numbers, Rank rank, int ranks) {
  const std::int64_t each = (numbers + ranks - 1) / ranks;
  const std::int64_t first = std::min(numbers, rank.value * each);
  return {first, std::min(each, numbers - first)};
}

Sum::Sum(Transport& ranks, const Message& values, Wanted wanted, int index)
    : ranks_(ranks),
      wanted_(wanted),
      parts_{tag_of(Kind::parts, index)},
      sums_{tag_of(Kind::sums, index)},
      taken_{tag_of(Kind::taken, index)} {
  for (const at::Tensor& tensor : values) {
    if (tensor.defined() && !tensor.is_contiguous()) {
      fail("only contiguous tensors can be summed over ranks",
           "Give contiguous ones.");
    }
    values_.push_back(tensor.defined() ? tensor.detach().view({-1}) : tensor);
  }
}

Message Sum::parts_of(Rank rank) const {
  Message parts;
  for (const at::Tensor& tensor : values_) {
    parts.push_back(tensor.defined() ? section(tensor, rank, ranks_.ranks())
                                     : tensor);
  }
  return parts;
}

// A rank has read its section of our values when its sums come, so the sums can
// take their place.
void Sum::begin() {
  for_others(ranks_, [&](Rank other) {
    if (wanted_ == Wanted::all) {
      ranks_.expect(other, sums_, parts_of(other));
    }
    ranks_.send(other, parts_, parts_of(other));
  });
}

bool Sum::has_all_parts() const {
  for (Rank rank; rank.value < ranks_.ranks(); ++rank.value) {
    if (rank != ranks_.rank() && !ranks_.has(rank, parts_)) {
      return false;
    }
  }
  return true;
}

void Sum::advance() {
  if (!own_ && has_all_parts()) {
    add_up();
  }
}

void Sum::add_up() {
  own_ = added_up();
  if (wanted_ == Wanted::all) {
    for_others(ranks_, [&](Rank other) { ranks_.send(other, sums_, *own_); });
  }
}

// In new memory or, where the values may be overwritten, in theirs: no other
// rank reads the own section.
Message Sum::added_up() const {
  const torch::NoGradGuard no_grad;
  const bool in_place = wanted_ == Wanted::all;
  const Message own = parts_of(ranks_.rank());
  std::vector<Adder> adders;
  for (const at::Tensor& values : own) {
    adders.emplace_back(in_place ? values : at::Tensor());
  }
  for (Rank rank; rank.value < ranks_.ranks(); ++rank.value) {
    const Message next =
        rank == ranks_.rank() ? own : ranks_.receive(rank, parts_);
    for (std::size_t i = 0; i < adders.size(); ++i) {
      adders[i].add(next.at(i));
    }
  }
  Message sums;
  for (std::size_t i = 0; i < adders.size(); ++i) {
    const at::Tensor sum = adders[i].sum();
    sums.push_back(sum.defined() && values_[i].defined()
                       ? sum.to(values_[i].scalar_type())
                       : sum);
  }
  return sums;
}

// The memory of the sums that we sent is free again once all other ranks have
// confirmed that they took them.
Message Sum::finish() {
  const torch::NoGradGuard no_grad;
  if (!own_) {
    add_up();
  }
  if (wanted_ == Wanted::own_section) {
    return *own_;
  }
  std::vector<Message> sums(ranks_.ranks());
  sums[ranks_.rank().value] = *own_;
  for_others(ranks_, [&](Rank other) {
    sums[other.value] = ranks_.receive(other, sums_);
  });
  for (std::size_t i = 0; i < values_.size(); ++i) {
    Message sections;
    for (const Message& of_rank : sums) {
      sections.push_back(of_rank.at(i));
    }
    join(sections, values_[i]);
  }
  for_others(ranks_, [&](Rank other) { ranks_.send(other, taken_, {}); });
  for_others(ranks_, [&](Rank other) { ranks_.receive(other, taken_); });
  return values_;
}

void all_reduce(Transport& ranks, const at::Tensor& values) {
  Sum sum(ranks, {values}, Sum::Wanted::all);
  sum.begin();
  sum.finish();
}

at::Tensor reduce_scatter(Transport& ranks, const at::Tensor& values) {
  Sum sum(ranks, {values}, Sum::Wanted::own_section);
  sum.begin();
  return sum.finish().at(0);
}

Message all_gather(Transport& ranks, const at::Tensor& own, Channel channel) {
  Message all(ranks.ranks());
  for_others(ranks, [&](Rank other) {
    ranks.send(other, tag_of(Kind::gather, channel), {own});
  });
  all[ranks.rank().value] = own;
  for_others(ranks, [&](Rank other) {
    all[other.value] =
        ranks.receive(other, tag_of(Kind::gather, channel)).at(0);
  });
  return all;
}

std::vector<Message> all_gather(Transport& ranks,
                                const Message& own,
                                int index) {
  const Tag tag = tag_of(Kind::gather_lists, index);
  std::vector<Message> all(ranks.ranks());
  for_others(ranks, [&](Rank other) { ranks.send(other, tag, own); });
  all[ranks.rank().value] = own;
  for_others(ranks,
             [&](Rank other) { all[other.value] = ranks.receive(other, tag); });
  return all;
}

Message broadcast(Transport& ranks,
                  Message message,
                  Rank root,
                  Channel channel) {
  if (ranks.rank() != root) {
    return ranks.receive(root, tag_of(Kind::broadcast, channel));
  }
  for_others(ranks, [&](Rank other) {
    ranks.send(other, tag_of(Kind::broadcast, channel), message);
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
    ranks.send(other, tag_of(Kind::exchange), {parts[other.value]});
  });
  for_others(ranks, [&](Rank other) {
    parts[other.value] = ranks.receive(other, tag_of(Kind::exchange)).at(0);
  });
  return parts;
}

void barrier(Transport& ranks) {
  constexpr Rank kFirst{0};
  if (ranks.rank() != kFirst) {
    ranks.send(kFirst, tag_of(Kind::arrived), {});
    ranks.receive(kFirst, tag_of(Kind::go));
    return;
  }
  for_others(ranks,
             [&](Rank other) { ranks.receive(other, tag_of(Kind::arrived)); });
  for_others(ranks,
             [&](Rank other) { ranks.send(other, tag_of(Kind::go), {}); });
}

}  // namespace cleave
