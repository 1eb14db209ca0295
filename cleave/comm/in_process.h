#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/units.h"

namespace cleave {

// Messages between ranks that are threads of one process: handed over by
// pointer, nothing is copied. Thread-safe. Outlives its connections.
class InProcessHub {
 public:
  // `patience`: how long a rank waits for a message before it gives up.
  InProcessHub(int ranks, Seconds patience);

  std::unique_ptr<Transport> connect(Rank rank);

  // Ends every wait, now and later, on all ranks. The first failure is kept.
  void abort(std::exception_ptr failure);

  // What the first abort gave; null while all is well.
  std::exception_ptr failure() const;

  void put(Rank from, Rank to, const Tag& tag, Message message);
  Message take(Rank from, Rank to, const Tag& tag);

 private:
  using Letter = std::pair<Rank, Tag>;

  struct Mailbox {
    std::mutex mutex;  // guards letters
    std::condition_variable arrived;
    std::map<Letter, std::deque<Message>> letters;
  };

  bool aborted() const { return failure() != nullptr; }

  Seconds patience_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // one per rank
  mutable std::mutex failure_mutex_;                 // guards failure_
  std::exception_ptr failure_;
};

}  // namespace cleave
