#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "cleave/comm/spin_wait.h"
#include "cleave/comm/transport.h"
#include "cleave/units.h"

namespace cleave {

// The messages that came for one rank and were not taken yet. Thread-safe.
class Mailbox {
 public:
  // `spin_wait`: how take() waits.
  explicit Mailbox(SpinWait spin_wait = {}) : spin_wait_(spin_wait) {}

  void put(Rank from, const Tag& tag, Message message);

  // The oldest message of that sender with that tag. Waits for it; none when
  // the time is over, or `stopped` is true at a wake().
  std::optional<Message> take(Rank from,
                              const Tag& tag,
                              Seconds time,
                              const std::function<bool()>& stopped);

  bool has(Rank from, const Tag& tag) const;

  // Makes every take() that waits check `stopped` again.
  void wake();

 private:
  using Key = std::pair<Rank, Tag>;

  SpinWait spin_wait_;
  std::atomic<std::int64_t> changes_ = 0;  // all that may end a wait
  mutable std::mutex mutex_;               // guards messages_
  std::condition_variable arrived_;
  std::map<Key, std::deque<Message>> messages_;
};

}  // namespace cleave
