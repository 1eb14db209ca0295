#include "cleave/comm/in_process.h"

#include <chrono>

#include "cleave/error.h"

namespace cleave {
namespace {

class InProcessTransport : public Transport {
 public:
  InProcessTransport(InProcessHub& hub, Rank rank, int ranks)
      : hub_(hub), rank_(rank), ranks_(ranks) {}

  Rank rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void send(Rank to, const Tag& tag, Message message) override {
    hub_.put(rank_, to, tag, std::move(message));
  }

  Message receive(Rank from, const Tag& tag) override {
    return hub_.take(from, rank_, tag);
  }

 private:
  InProcessHub& hub_;
  Rank rank_;
  int ranks_;
};

}  // namespace

InProcessHub::InProcessHub(int ranks, Seconds patience) : patience_(patience) {
  for (int rank = 0; rank < ranks; ++rank) {
    mailboxes_.push_back(std::make_unique<Mailbox>());
  }
}

std::unique_ptr<Transport> InProcessHub::connect(Rank rank) {
  return std::make_unique<InProcessTransport>(
      *this, rank, static_cast<int>(mailboxes_.size()));
}

void InProcessHub::abort(std::exception_ptr failure) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) {
      failure_ = std::move(failure);
    }
  }
  for (const auto& mailbox : mailboxes_) {
    // Taking the lock makes sure that a waiting rank is either before its
    // check of the failure or already asleep, so that it cannot miss this.
    { const std::lock_guard lock(mailbox->mutex); }
    mailbox->arrived.notify_all();
  }
}

std::exception_ptr InProcessHub::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void InProcessHub::put(Rank from, Rank to, const Tag& tag, Message message) {
  Mailbox& mailbox = *mailboxes_.at(to.value);
  {
    const std::lock_guard lock(mailbox.mutex);
    mailbox.letters[{from, tag}].push_back(std::move(message));
  }
  mailbox.arrived.notify_one();
}

Message InProcessHub::take(Rank from, Rank to, const Tag& tag) {
  Mailbox& mailbox = *mailboxes_.at(to.value);
  std::unique_lock lock(mailbox.mutex);
  auto letter = mailbox.letters.end();
  const bool in_time = mailbox.arrived.wait_for(
      lock, std::chrono::duration<double>(patience_.value), [&] {
        letter = mailbox.letters.find({from, tag});
        return letter != mailbox.letters.end() || aborted();
      });
  if (letter == mailbox.letters.end()) {
    const std::string who = "rank " + std::to_string(to.value);
    const std::string whom = "rank " + std::to_string(from.value);
    if (in_time) {
      fail(who + " stopped because another rank failed", "");
    }
    fail(who + " waited " + to_text(patience_) + " for " + to_text(tag) +
             " from " + whom,
         "See what " + whom +
             " is doing; give it longer with devices.patience.");
  }
  Message message = std::move(letter->second.front());
  letter->second.pop_front();
  if (letter->second.empty()) {
    mailbox.letters.erase(letter);
  }
  return message;
}

}  // namespace cleave
