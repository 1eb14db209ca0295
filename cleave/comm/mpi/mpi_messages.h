#pragma once

#include <mpi.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cleave/comm/mailbox.h"
#include "cleave/comm/mpi/envelope.h"

namespace cleave {

class DeviceMemory;

// MPI itself, as long as it is needed, and the messages of this process that
// are under way over it. Not thread-safe, as MPI is not: its world calls it
// under a lock.
class MpiMessages {
 public:
  struct Received {
    Rank from;
    std::string bytes;
  };

  // Starts MPI unless the program has. Messages that came go into the mailbox,
  // which is borrowed and must outlive it. Throws Error where the MPI cannot be
  // used by threads.
  explicit MpiMessages(Mailbox& mailbox);
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  // Ends MPI where it was started here. Only when all is well: others may be
  // gone, and the end waits for them.
  void end();

  Rank rank() const;

  // Of all ranks, by rank. All processes call it together.
  std::vector<std::string> hosts() const;

  // What seal() wrote, and behind it the tensors that are not inside, whose
  // memory is kept until they have left.
  void send(Rank to, std::vector<char> envelope, const Message& outside);
  void send_failure(Rank to, const std::string& text);

  // The next failure that another rank sent, if one came.
  std::optional<Received> next_failure();

  // As Transport::expect() says, until it is forgotten.
  void expect(Rank from, const Tag& tag, const Message& into);
  void forget_expected(Rank from, const Tag& tag);

  // The memory of tensors that no expect() named.
  void set_memory(std::shared_ptr<DeviceMemory> memory);

  // Receives what came, puts messages that are whole into the mailbox, and
  // forgets those that have left.
  void progress();

  bool all_sent() const { return outgoing_.empty(); }
  bool any_under_way() const;  // to this process or from it

 private:
  struct Outgoing {
    std::vector<char> bytes;
    Message message;  // keeps its memory
    std::vector<MPI_Request> requests;
  };

  struct Incoming {
    Envelope envelope;
    std::vector<MPI_Request> requests;
  };

  void post(Rank to, int kind, std::vector<char> bytes, const Message& message);
  std::optional<Received> next(int kind);
  void open_envelopes();
  void deliver();
  void forget_sent();

  MPI_Comm ranks_ = MPI_COMM_NULL;
  bool ends_mpi_ = false;
  Mailbox& mailbox_;
  std::deque<Outgoing> outgoing_;
  std::map<int, std::deque<Incoming>> incoming_;  // by sender, in order
  std::map<std::pair<Rank, Tag>, Message> expected_;
  std::shared_ptr<DeviceMemory> memory_;  // where received tensors belong
};

}  // namespace cleave
