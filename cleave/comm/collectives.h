#pragma once

#include <optional>

#include "cleave/comm/transport.h"

// Operations of all ranks of a transport together: every rank calls them, in
// the same order. They are made of messages, so they run on every transport,
// keep its deadlines, and give the same bits everywhere. A second thread of a
// rank uses another channel.
namespace cleave {

// A part of a flat tensor.
struct Section {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// What `rank` of `ranks` is responsible for, of `numbers`: equal parts but for
// the last ones.
Section section_of(std::int64_t numbers, Rank rank, int ranks);

// Sums of several tensors over all ranks, in the order of the ranks and, for
// bf16, in fp32; each rank adds up its section of every tensor. A tensor that
// is undefined on some ranks counts as zero there. In parts, so that computing
// fits between: begin() sends, advance() does what is possible, finish() waits.
// Sums that are under way together have different indices.
class Sum {
 public:
  enum class Wanted { all, own_section };

  // REQUIRES: the defined ones are contiguous. They are not written to before
  // finish() is done; where only sections are wanted, never again.
  Sum(Transport& ranks, const Message& values, Wanted wanted, int index = 0);

  // Sends every rank the sections that it adds up.
  void begin();

  // Once all parts of the own section have come, adds them up, and sends the
  // sum to the other ranks if these want it. REQUIRES: begun.
  void advance();

  // The sums. All: flat, in the memory of the values; or the own section of
  // each. Undefined where no rank has the tensor. REQUIRES: begun.
  Message finish();

 private:
  Message parts_of(Rank rank) const;
  bool has_all_parts() const;
  void add_up();
  Message added_up() const;

  Transport& ranks_;
  Message values_;  // flat
  Wanted wanted_;
  std::optional<Message> own_;  // section of every sum
  Tag parts_;
  Tag sums_;
  Tag taken_;
};

// The tensor, summed over the ranks, in place.
void all_reduce(Transport& ranks, const at::Tensor& values);

// The own section (section_of) of the sum.
at::Tensor reduce_scatter(Transport& ranks, const at::Tensor& values);

// What every rank gave, by rank, of any shapes. Memory may be shared with the
// ranks that gave it: it is for reading, and they no longer write to it.
Message all_gather(Transport& ranks,
                   const at::Tensor& own,
                   Channel channel = Channel::collective);

// The same for several tensors of each. Calls that are under way together have
// different indices.
std::vector<Message> all_gather(Transport& ranks,
                                const Message& own,
                                int index);

// What `root` gave; others give anything. For reading, as above.
Message broadcast(Transport& ranks,
                  Message message,
                  Rank root,
                  Channel channel = Channel::collective);

// parts[i] goes to rank i; returns what came from rank i. For reading, as
// above.
Message all_to_all(Transport& ranks, Message parts);

// Returns when all ranks have called it.
void barrier(Transport& ranks);

}  // namespace cleave
