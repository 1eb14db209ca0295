#include "cleave/comm/mailbox.h"

#include <chrono>
#include <utility>

namespace cleave {

void Mailbox::put(Rank from, const Tag& tag, Message message) {
  {
    const std::lock_guard lock(mutex_);
    messages_[{from, tag}].push_back(std::move(message));
    ++changes_;
  }
  // All: a rank and what it started for itself may both wait here.
  arrived_.notify_all();
}

std::optional<Message> Mailbox::take(Rank from,
                                     const Tag& tag,
                                     Seconds time,
                                     const std::function<bool()>& stopped) {
  auto found = messages_.end();
  const auto is_over = [&] {
    found = messages_.find({from, tag});
    return found != messages_.end() || stopped();
  };
  std::int64_t last = -1;  // change that was looked at
  spin_wait_.until([&] {
    const std::int64_t now = changes_;
    if (std::exchange(last, now) == now) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    return is_over();
  });
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::duration<double>(time.value), is_over);
  if (found == messages_.end()) {
    return std::nullopt;
  }
  Message message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    messages_.erase(found);
  }
  return message;
}

bool Mailbox::has(Rank from, const Tag& tag) const {
  const std::lock_guard lock(mutex_);
  return messages_.contains({from, tag});
}

void Mailbox::wake() {
  // With the lock held, a thread in take() is either before its check or
  // already asleep, so that it cannot miss this.
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  arrived_.notify_all();
}

}  // namespace cleave
