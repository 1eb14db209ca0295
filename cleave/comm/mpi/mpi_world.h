#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cleave/comm/mailbox.h"
#include "cleave/comm/transport.h"
#include "cleave/comm/world.h"
#include "cleave/units.h"

namespace cleave {

class MpiMessages;

// Where a rank of an MPI job runs.
struct MpiPlace {
  std::string host;
  int local_rank = 0;   // among the ranks on its host
  int local_ranks = 1;  // how many those are
};

// Messages between processes that an MPI launcher (mpirun, srun) started; each
// is one rank. Sending and receiving need no other call to progress: a thread
// of the world moves messages while the rank computes.
class MpiWorld : public World {
 public:
  // One at a time in a process. Starts MPI unless the program has, and then
  // also ends it. `patience`: how long a rank waits for a message before it
  // gives up. Throws Error where the MPI cannot be used by threads.
  explicit MpiWorld(Seconds patience);

  // Sends what is under way, as far as other ranks still receive it.
  ~MpiWorld() override;

  Rank rank() const { return rank_; }
  const MpiPlace& place(Rank rank) const { return places_.at(rank.value); }

  // "rank 3 (host)".
  std::string name(Rank rank) const;

  int ranks() const override { return static_cast<int>(places_.size()); }
  std::vector<Rank> local() const override { return {rank_}; }
  std::unique_ptr<Transport> connect(Rank rank) override;
  void abort(std::exception_ptr failure) override;
  std::exception_ptr failure() const override;

  // Whether it came from another rank, which has reported it to the user.
  bool failed_elsewhere() const;

  // Whether a rank gave up waiting for another one, here or elsewhere.
  bool timed_out() const;

  // Called with what the rank is about to do. Set before the first connect().
  void set_note(std::function<void(const Activity&)> note) {
    note_ = std::move(note);
  }
  void note(const Activity& doing) {
    if (note_) {
      note_(doing);
    }
  }

  void send(Rank to, const Tag& tag, const Message& message);
  void expect(Rank from, const Tag& tag, const Message& into);
  Message take(Rank from, const Tag& tag);
  bool has(Rank from, const Tag& tag);

 private:
  void find_places();
  void progress();
  void watch_failures();
  void watch();
  void flush(Seconds time);
  void keep_failure(std::exception_ptr failure, bool elsewhere);
  void keep_timed_out();
  void notify_others(const std::exception_ptr& failure);
  void fail_in_background(const std::exception_ptr& failure);

  Seconds patience_;
  Rank rank_;
  std::vector<MpiPlace> places_;
  Mailbox mailbox_;

  std::function<void(const Activity&)> note_;

  mutable std::mutex failure_mutex_;  // guards the next three
  std::exception_ptr failure_;
  bool elsewhere_ = false;
  bool timed_out_ = false;

  // Guards all calls of MPI, and what follows.
  std::mutex mutex_;
  std::unique_ptr<MpiMessages> messages_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::jthread progress_thread_;  // last: starts when all else is there
};

}  // namespace cleave
