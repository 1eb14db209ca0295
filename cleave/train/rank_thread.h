#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "cleave/comm/world.h"
#include "cleave/device/device.h"
#include "cleave/device/memory.h"
#include "cleave/train/rank_trainer.h"

namespace cleave {

// A rank that is a thread of this process: bound to its device, it does what
// it is given, in order. What throws there ends the waits of all ranks.
class RankThread {
 public:
  using Task = std::function<void(std::unique_ptr<RankTrainer>&)>;

  // Borrows the world, which must outlive it.
  RankThread(const Device& device, World& world);

  // Lets the task in hand end, drops the others, and joins.
  ~RankThread();

  // Builds the trainer that later tasks use.
  std::future<void> build(
      const std::function<std::unique_ptr<RankTrainer>()>& make);

  // Calls a function with the trainer. REQUIRES: build() was called before.
  template <class Result>
  std::future<Result> submit_call(std::function<Result(RankTrainer&)> call) {
    return submit<Result>([call](std::unique_ptr<RankTrainer>& trainer) {
      return call(*trainer);
    });
  }

  Bytes peak_memory() const { return memory_->peak(); }

 private:
  template <class Result>
  std::future<Result> submit(
      std::function<Result(std::unique_ptr<RankTrainer>&)> work);

  void run(const Device& device);

  World& world_;
  // Shared with the tensors in it, which may outlive this.
  std::shared_ptr<DeviceMemory> memory_;
  std::mutex mutex_;  // guards tasks_ and stopping_
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::jthread thread_;  // last: starts when all else is there
};

template <class Result>
std::future<Result> RankThread::submit(
    std::function<Result(std::unique_ptr<RankTrainer>&)> work) {
  auto task = std::make_shared<
      std::packaged_task<Result(std::unique_ptr<RankTrainer>&)>>(
      [this, work](std::unique_ptr<RankTrainer>& trainer) {
        try {
          return work(trainer);
        } catch (...) {
          world_.abort(std::current_exception());
          throw;
        }
      });
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(
        [task](std::unique_ptr<RankTrainer>& trainer) { (*task)(trainer); });
  }
  changed_.notify_one();
  return task->get_future();
}

}  // namespace cleave
