#include "cleave/train/rank_thread.h"

#include <utility>

namespace cleave {

RankThread::RankThread(const Device& device, World& world)
    : world_(world),
      memory_(std::make_shared<DeviceMemory>(device.name, device.memory)),
      thread_([this, device] { run(device); }) {}

RankThread::~RankThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
}

std::future<void> RankThread::build(
    const std::function<std::unique_ptr<RankTrainer>()>& make) {
  return submit<void>(
      [make](std::unique_ptr<RankTrainer>& trainer) { trainer = make(); });
}

void RankThread::run(const Device& device) {
  bind_to(device);
  const MemoryScope scope(memory_);
  std::unique_ptr<RankTrainer> trainer;
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (stopping_) {
      return;
    }
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task(trainer);
  }
}

}  // namespace cleave
