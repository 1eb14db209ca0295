#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "cleave/comm/spin_wait.h"
#include "cleave/ids.h"
#include "cleave/schedule/turns.h"
#include "cleave/units.h"

namespace cleave {

// Does the actions of one rank's row. Called by several threads at a time, for
// actions that may run at the same time. For each action first take(), then
// act(), on the thread of rank `by`.
class RowWorker {
 public:
  virtual ~RowWorker() = default;

  // Takes what comes by message, out of the memory of the rank that sent it.
  virtual void take(const SharedAction& action, Rank by) = 0;

  virtual void act(const SharedAction& action, Rank by) = 0;

  // Whether what the action receives is there.
  virtual bool has_received(const SharedAction& action) const = 0;

  // Throws the Error of a rank that waited so long for the action's message.
  [[noreturn]] virtual void fail_timed_out(const SharedAction& action,
                                           Seconds patience) const = 0;
};

// Lets ranks that are threads of one process do each other's work where they
// would wait (schedule/turns.h says who does what). Thread-safe.
class Lending {
 public:
  // `patience`: how long nothing may happen. `stopped`: whether a rank failed
  // elsewhere; asked now and then.
  Lending(int ranks, Seconds patience, std::function<bool()> stopped);

  // Works, as this rank, on its row and on others' until its row has ended. One
  // call at a time for a rank. Throws what the first action threw that failed,
  // whoever did it, and Error when a rank failed elsewhere; nobody then works
  // on the row.
  void run(Rank rank,
           std::int64_t step,
           const SharedRow& row,
           RowWorker& worker);

  // Works on others' rows until all of the step have ended: for a rank that
  // has to wait for that anyway. Throws as run() does. REQUIRES: the rank's own
  // row of the step has ended.
  void help(Rank rank, std::int64_t step);

  // A message was sent by an action that goes on: wakes who waits for it.
  void note_message();

 private:
  using Clock = std::chrono::steady_clock;

  void work_or_wait(Rank rank, std::unique_lock<std::mutex>& lock);
  void work(const Turn& turn, std::unique_lock<std::mutex>& lock);
  void wait(Rank rank, std::unique_lock<std::mutex>& lock);
  void note_failure(const std::exception_ptr& failure);
  void tell_of_change();

  Seconds patience_;
  std::function<bool()> stopped_;
  SpinWait spin_wait_;
  std::atomic<std::int64_t> changes_ = 0;  // changes under the mutex only
  std::mutex mutex_;                       // guards all below
  std::condition_variable changed_;
  Turns turns_;
  std::vector<RowWorker*> workers_;  // of the open rows
  int running_ = 0;                  // actions, of all rows
  std::exception_ptr failure_;       // the first
  Clock::time_point last_change_ = Clock::now();
};

}  // namespace cleave
