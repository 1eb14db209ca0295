#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cleave/comm/mailbox.h"
#include "cleave/comm/world.h"
#include "cleave/units.h"

namespace cleave {

// Messages between ranks that are threads of one process: handed over by
// pointer, nothing is copied.
class ThreadWorld : public World {
 public:
  // `patience`: how long a rank waits for a message before it gives up.
  ThreadWorld(int ranks, Seconds patience);

  int ranks() const override { return static_cast<int>(mailboxes_.size()); }
  std::vector<Rank> local() const override;
  std::unique_ptr<Transport> connect(Rank rank) override;
  void abort(std::exception_ptr failure) override;
  std::exception_ptr failure() const override;

  void put(Rank from, Rank to, const Tag& tag, Message message);
  Message take(Rank from, Rank to, const Tag& tag);
  bool has(Rank from, Rank to, const Tag& tag) const;

 private:
  Seconds patience_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // one per rank
  mutable std::mutex failure_mutex_;                 // guards failure_
  std::exception_ptr failure_;
};

}  // namespace cleave
