#include "cleave/comm/mailbox.h"

#include <chrono>
#include <utility>

namespace cleave {

void Mailbox::put(Rank from, const Tag& tag, Message message) {
  {
    const std::lock_guard lock(mutex_);
    letters_[{from, tag}].push_back(std::move(message));
    ++changes_;
  }
  // All: a rank and what it started for itself may both wait here.
  arrived_.notify_all();
}

std::optional<Message> Mailbox::take(Rank from,
                                     const Tag& tag,
                                     Seconds time,
                                     const std::function<bool()>& stopped) {
  auto letter = letters_.end();
  const auto is_over = [&] {
    letter = letters_.find({from, tag});
    return letter != letters_.end() || stopped();
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
  if (letter == letters_.end()) {
    return std::nullopt;
  }
  Message message = std::move(letter->second.front());
  letter->second.pop_front();
  if (letter->second.empty()) {
    letters_.erase(letter);
  }
  return message;
}

bool Mailbox::has(Rank from, const Tag& tag) const {
  const std::lock_guard lock(mutex_);
  return letters_.contains({from, tag});
}

void Mailbox::wake() {
  // Taking the lock makes sure that who waits is either before its question or
  // already asleep, so that it cannot miss this.
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  arrived_.notify_all();
}

}  // namespace cleave
