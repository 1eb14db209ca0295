#include "cleave/comm/thread_world.h"

#include "cleave/error.h"

namespace cleave {
namespace {

class InProcessTransport : public Transport {
 public:
  InProcessTransport(ThreadWorld& world, Rank rank)
      : world_(world), rank_(rank) {}

  Rank rank() const override { return rank_; }
  int ranks() const override { return world_.ranks(); }

  void send(Rank to, const Tag& tag, Message message) override {
    world_.put(rank_, to, tag, std::move(message));
  }

  Message receive(Rank from, const Tag& tag) override {
    return world_.take(from, rank_, tag);
  }

  bool has(Rank from, const Tag& tag) override {
    return world_.has(from, rank_, tag);
  }

 private:
  ThreadWorld& world_;
  Rank rank_;
};

}  // namespace

ThreadWorld::ThreadWorld(int ranks, Seconds patience) : patience_(patience) {
  for (int rank = 0; rank < ranks; ++rank) {
    mailboxes_.push_back(std::make_unique<Mailbox>(SpinWait(ranks)));
  }
}

std::vector<Rank> ThreadWorld::local() const {
  std::vector<Rank> all;
  for (Rank rank; rank.value < ranks(); ++rank.value) {
    all.push_back(rank);
  }
  return all;
}

std::unique_ptr<Transport> ThreadWorld::connect(Rank rank) {
  return std::make_unique<InProcessTransport>(*this, rank);
}

void ThreadWorld::abort(std::exception_ptr failure) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) {
      failure_ = std::move(failure);
    }
  }
  for (const auto& mailbox : mailboxes_) {
    mailbox->wake();
  }
}

std::exception_ptr ThreadWorld::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void ThreadWorld::put(Rank from, Rank to, const Tag& tag, Message message) {
  mailboxes_.at(to.value)->put(from, tag, std::move(message));
}

bool ThreadWorld::has(Rank from, Rank to, const Tag& tag) const {
  return mailboxes_.at(to.value)->has(from, tag);
}

Message ThreadWorld::take(Rank from, Rank to, const Tag& tag) {
  std::optional<Message> message = mailboxes_.at(to.value)->take(
      from, tag, patience_, [this] { return failure() != nullptr; });
  if (message) {
    return *std::move(message);
  }
  if (failure()) {
    fail(name_of(to) + " stopped because another rank failed", "");
  }
  fail_timed_out(name_of(to), name_of(from), tag, patience_);
}

}  // namespace cleave
