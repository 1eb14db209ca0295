#include "cleave/train/lending.h"

#include <utility>

#include "cleave/comm/transport.h"
#include "cleave/error.h"

namespace cleave {
namespace {

// Failures elsewhere do not wake who waits here.
constexpr std::chrono::milliseconds kAskAgain{100};

}  // namespace

Lending::Lending(int ranks, Seconds patience, std::function<bool()> stopped)
    : patience_(patience),
      stopped_(std::move(stopped)),
      spin_wait_(ranks),
      turns_(ranks),
      workers_(ranks) {}

void Lending::run(Rank rank,
                  std::int64_t step,
                  const SharedRow& row,
                  RowWorker& worker) {
  std::unique_lock lock(mutex_);
  workers_.at(rank.value) = &worker;
  turns_.open(rank, step, row);
  tell_of_change();
  try {
    while (!turns_.has_ended(rank)) {
      work_or_wait(rank, lock);
    }
  } catch (...) {
    // Others may still work on the row, but begin nothing any more.
    note_failure(std::current_exception());
    changed_.wait(lock, [&] { return !turns_.is_worked_on(rank); });
    throw;
  }
}

void Lending::help(Rank rank, std::int64_t step) {
  std::unique_lock lock(mutex_);
  while (!turns_.have_all_ended(step)) {
    work_or_wait(rank, lock);
  }
}

void Lending::note_message() {
  const std::lock_guard lock(mutex_);
  tell_of_change();
}

void Lending::work_or_wait(Rank rank, std::unique_lock<std::mutex>& lock) {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (stopped_()) {
    fail(name_of(rank) + " stopped because another rank failed", "");
  }
  const auto has_arrived = [this](const Turn& turn) {
    return workers_[turn.row.value]->has_received(turns_.at(turn));
  };
  if (const std::optional<Turn> turn = turns_.begin(rank, has_arrived)) {
    work(*turn, lock);
  } else {
    wait(rank, lock);
  }
}

void Lending::work(const Turn& turn, std::unique_lock<std::mutex>& lock) {
  RowWorker& worker = *workers_[turn.row.value];
  const SharedAction& action = turns_.at(turn);
  ++running_;
  tell_of_change();  // what comes next in the row may begin now
  std::exception_ptr problem;
  try {
    // Before anybody begins what the sender now has memory for.
    worker.take(action, turn.who);
    lock.unlock();
    worker.act(action, turn.who);
  } catch (...) {
    problem = std::current_exception();
  }
  if (!lock.owns_lock()) {
    lock.lock();
  }
  --running_;
  turns_.end(turn);
  if (problem) {
    note_failure(problem);
    std::rethrow_exception(problem);
  }
  tell_of_change();
}

// REQUIRES: nothing can begin. Where nothing runs either, the rank's row waits
// for a message, or for a rank that has yet to come and take one.
void Lending::wait(Rank rank, std::unique_lock<std::mutex>& lock) {
  const std::chrono::duration<double> quiet = Clock::now() - last_change_;
  if (running_ == 0 && quiet.count() > patience_.value &&
      !turns_.has_ended(rank)) {
    workers_[rank.value]->fail_timed_out(turns_.next(rank), patience_);
  }
  const std::int64_t before = changes_;
  lock.unlock();
  spin_wait_.until([&] { return changes_ != before; });
  lock.lock();
  if (changes_ == before) {
    changed_.wait_for(lock, kAskAgain);
  }
}

void Lending::note_failure(const std::exception_ptr& failure) {
  if (!failure_) {
    failure_ = failure;
  }
  tell_of_change();
}

void Lending::tell_of_change() {
  last_change_ = Clock::now();
  ++changes_;
  changed_.notify_all();
}

}  // namespace cleave
