#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "cleave/ids.h"
#include "cleave/units.h"

namespace cleave {

// What a message is about.
enum class Channel {
  values,         // of a microbatch, to the next stage
  gradients,      // of a microbatch, to the previous stage
  tied_gradient,  // of a shared parameter, to the stage that owns it
  tied_weight,    // a shared parameter, from the stage that owns it
  norms,          // of a stage's gradients, to every other rank
  collective,     // a part of an operation of several ranks
  report,         // what a rank found, to the process that leads
  agreement,      // what all processes must do alike
  clock,          // what time it is
};
constexpr Channel kLastChannel = Channel::clock;

// Which message is meant. Messages with the same tag between the same two
// ranks arrive in the order they were sent.
struct Tag {
  Channel channel = Channel::values;
  int index = 0;  // which boundary or shared parameter
  Microbatch microbatch;

  auto operator<=>(const Tag&) const = default;
};

// "the values of microbatch 3".
std::string to_text(const Tag& tag);

// Tensors of any shape and type; an undefined one means there is none. Whether
// they require a gradient is kept, what they were computed from is not.
using Message = std::vector<at::Tensor>;

// What a rank is doing: shown when the rank is lost.
struct Activity {
  const char* what = "";                 // "backward"
  std::optional<StageId> stage;          // where it is about one
  std::optional<Microbatch> microbatch;  // likewise
};

// "stage 1, microbatch 3, backward".
std::string to_text(const Activity& activity);

// One rank's end of the messages between ranks. Used by that rank's thread
// only; that of ranks which are threads of one process by any of them.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual Rank rank() const = 0;
  virtual int ranks() const = 0;

  // Sends the message and returns at once. The tensors' memory may be
  // the receiver's from now on: the sender no longer writes to it until the
  // protocol says that the receiver is done.
  virtual void send(Rank to, const Tag& tag, Message message) = 0;

  // Waits for the message. Throws Error that names the peer and the message
  // when it does not come in time, and as soon as any rank has failed.
  virtual Message receive(Rank from, const Tag& tag) = 0;

  // Whether receive() would return at once.
  virtual bool has(Rank from, const Tag& tag) = 0;

  // Says that the next message of that sender with that tag may be put right
  // into these tensors, which it fills or leaves as they are: receive() then
  // returns some of them. Where an undefined one stands, and where memory is
  // shared anyway, nothing changes.
  virtual void expect(Rank /*from*/,
                      const Tag& /*tag*/,
                      const Message& /*into*/) {}

  // Keeps what the rank is about to do, to be shown when it is lost.
  virtual void note(const Activity& /*activity*/) {}
};

// "rank 3".
std::string name_of(Rank rank);

// Throws the Error of a rank whose wait timed out. `waiting` and `peer` name it
// and the rank it waited for.
[[noreturn]] void fail_timed_out(const std::string& waiting,
                                 const std::string& peer,
                                 const Tag& tag,
                                 Seconds patience);

}  // namespace cleave
