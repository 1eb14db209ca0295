#include "cleave/train/stealing/stealing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "cleave/comm/spin_wait.h"
#include "cleave/error.h"
#include "cleave/plan/predict.h"
#include "cleave/train/stealing/turns.h"

namespace cleave {
namespace {

// Failures elsewhere do not wake a waiting thread.
constexpr std::chrono::milliseconds kAskAgain{100};

// What the plan says of memory.
struct RowLimits {
  std::vector<StageBytes> stages;
  std::vector<Bytes> slack;  // by rank
};

RowLimits limits_of(const Plan& plan) {
  if (!plan.prediction) {
    // What units need is unknown: only the first of a row may run.
    const StageBytes some{.forward_need = {1},
                          .backward_need = {1},
                          .whole_need = {1},
                          .weight_need = {1}};
    return {std::vector<StageBytes>(plan.stages.size(), some),
            std::vector<Bytes>(plan.devices.size())};
  }
  const std::vector<StagePrediction>& stages = plan.prediction->stages;
  RowLimits limits{memory_of(stages),
                   row_limits(plan.schedule, stages, plan.devices, true)};
  const std::vector<Bytes> in_order =
      row_limits(plan.schedule, stages, plan.devices, false);
  for (std::size_t rank = 0; rank < in_order.size(); ++rank) {
    limits.slack[rank] = limits.slack[rank] - in_order[rank];
  }
  // In order, what takes a gradient has ended where here it has only begun.
  const std::vector<Rank> placement = placement_of(plan);
  for (std::size_t stage = 0; stage < placement.size(); ++stage) {
    Bytes& slack = limits.slack[placement[stage].value];
    slack = std::max(Bytes{}, slack - limits.stages[stage].shared);
  }
  return limits;
}

class Stealing : public Runner {
 public:
  Stealing(const Plan& plan, Seconds patience, std::function<bool()> stopped)
      : limits_(limits_of(plan)),
        patience_(patience),
        stopped_(std::move(stopped)),
        spin_wait_(static_cast<int>(plan.devices.size())),
        turns_(static_cast<int>(plan.devices.size())),
        performers_(plan.devices.size()) {}

  void run(Rank rank, const Pass& pass, ActionPerformer& actions) override;

 private:
  using Clock = std::chrono::steady_clock;

  const SharedRow& shared_row(const Pass& pass, Rank rank);
  void work_or_wait(Rank rank, std::unique_lock<std::mutex>& lock);
  void work(const Turn& turn, std::unique_lock<std::mutex>& lock);
  void wait(Rank rank, std::unique_lock<std::mutex>& lock);
  bool has_arrived(const Turn& turn) const;
  void note_failure(const std::exception_ptr& failure);
  void notify();

  RowLimits limits_;
  Seconds patience_;
  std::function<bool()> stopped_;
  SpinWait spin_wait_;
  std::atomic<std::int64_t> changes_ = 0;  // changes under the mutex only
  std::mutex mutex_;                       // guards all below
  std::condition_variable changed_;
  // By schedule, which each entry keeps alive.
  std::map<std::shared_ptr<const PassSchedule>, std::vector<SharedRow>> rows_;
  Turns turns_;
  std::vector<ActionPerformer*> performers_;  // of the open rows
  std::vector<const Row*> open_ = std::vector<const Row*>(performers_.size());
  int running_ = 0;             // units, of all rows
  std::exception_ptr failure_;  // the first
  Clock::time_point last_change_ = Clock::now();
};

const SharedRow& Stealing::shared_row(const Pass& pass, Rank rank) {
  std::vector<SharedRow>& rows = rows_[pass.schedule];
  if (rows.empty()) {
    rows = shared_rows(pass.schedule->order(), limits_.stages, limits_.slack);
  }
  return rows.at(rank.value);
}

void Stealing::run(Rank rank, const Pass& pass, ActionPerformer& actions) {
  std::unique_lock lock(mutex_);
  const SharedRow& row = shared_row(pass, rank);
  performers_.at(rank.value) = &actions;
  open_.at(rank.value) = row.row;
  turns_.open(rank, pass.step, row);
  notify();
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

bool Stealing::has_arrived(const Turn& turn) const {
  const ActionPerformer& actions = *performers_[turn.row.value];
  for (const Action& action : turns_.at(turn).receives) {
    if (!actions.has_arrived(action)) {
      return false;
    }
  }
  return true;
}

void Stealing::work_or_wait(Rank rank, std::unique_lock<std::mutex>& lock) {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (stopped_()) {
    fail(name_of(rank) + " stopped because another rank failed", "");
  }
  const auto arrived = [this](const Turn& turn) { return has_arrived(turn); };
  if (const std::optional<Turn> turn = turns_.begin(rank, arrived)) {
    work(*turn, lock);
  } else {
    wait(rank, lock);
  }
}

void Stealing::work(const Turn& turn, std::unique_lock<std::mutex>& lock) {
  ActionPerformer& actions = *performers_[turn.row.value];
  const Row& row = *open_[turn.row.value];
  const WorkUnit unit = turns_.at(turn);
  ++running_;
  notify();  // what comes next in the row may begin now
  std::exception_ptr problem;
  lock.unlock();
  try {
    for (std::size_t position = unit.first; position < unit.end; ++position) {
      actions.perform(row, position, turn.by);
    }
  } catch (...) {
    problem = std::current_exception();
  }
  lock.lock();
  --running_;
  turns_.end(turn);
  if (problem) {
    note_failure(problem);
    std::rethrow_exception(problem);
  }
  notify();
}

// REQUIRES: nothing can begin. Where nothing runs either, the rank's row waits
// for a message.
void Stealing::wait(Rank rank, std::unique_lock<std::mutex>& lock) {
  const std::chrono::duration<double> quiet = Clock::now() - last_change_;
  if (running_ == 0 && quiet.count() > patience_.value &&
      !turns_.has_ended(rank)) {
    const WorkUnit& unit = turns_.next(rank);
    const Row& row = *open_[rank.value];
    performers_[rank.value]->fail_late(
        unit.receives.empty() ? row[unit.first] : unit.receives.front(),
        patience_);
  }
  const std::int64_t before = changes_;
  lock.unlock();
  spin_wait_.until([&] { return changes_ != before; });
  lock.lock();
  if (changes_ == before) {
    changed_.wait_for(lock, kAskAgain);
  }
}

void Stealing::note_failure(const std::exception_ptr& failure) {
  if (!failure_) {
    failure_ = failure;
  }
  notify();
}

void Stealing::notify() {
  last_change_ = Clock::now();
  ++changes_;
  changed_.notify_all();
}

}  // namespace

std::unique_ptr<Runner> make_stealing(const Plan& plan,
                                      Seconds patience,
                                      std::function<bool()> stopped) {
  return std::make_unique<Stealing>(plan, patience, std::move(stopped));
}

}  // namespace cleave
