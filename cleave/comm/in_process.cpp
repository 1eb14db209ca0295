#include "cleave/comm/in_process.h"

#include "cleave/error.h"

namespace cleave {
namespace {

class InProcessTransport : public Transport {
 public:
  InProcessTransport(InProcessHub& hub, Rank rank) : hub_(hub), rank_(rank) {}

  Rank rank() const override { return rank_; }
  int ranks() const override { return hub_.ranks(); }

  void send(Rank to, const Tag& tag, Message message) override {
    hub_.put(rank_, to, tag, std::move(message));
  }

  Message receive(Rank from, const Tag& tag) override {
    return hub_.take(from, rank_, tag);
  }

  bool has(Rank from, const Tag& tag) override {
    return hub_.has(from, rank_, tag);
  }

 private:
  InProcessHub& hub_;
  Rank rank_;
};

}  // namespace

InProcessHub::InProcessHub(int ranks, Seconds patience) : patience_(patience) {
  for (int rank = 0; rank < ranks; ++rank) {
    mailboxes_.push_back(std::make_unique<Mailbox>(Lookout(ranks)));
  }
}

std::vector<Rank> InProcessHub::local() const {
  std::vector<Rank> all;
  for (Rank rank; rank.value < ranks(); ++rank.value) {
    all.push_back(rank);
  }
  return all;
}

std::unique_ptr<Transport> InProcessHub::connect(Rank rank) {
  return std::make_unique<InProcessTransport>(*this, rank);
}

void InProcessHub::abort(std::exception_ptr failure) {
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

std::exception_ptr InProcessHub::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void InProcessHub::put(Rank from, Rank to, const Tag& tag, Message message) {
  mailboxes_.at(to.value)->put(from, tag, std::move(message));
}

bool InProcessHub::has(Rank from, Rank to, const Tag& tag) const {
  return mailboxes_.at(to.value)->has(from, tag);
}

Message InProcessHub::take(Rank from, Rank to, const Tag& tag) {
  std::optional<Message> message = mailboxes_.at(to.value)->take(
      from, tag, patience_, [this] { return failure() != nullptr; });
  if (message) {
    return *std::move(message);
  }
  if (failure()) {
    fail(name_of(to) + " stopped because another rank failed", "");
  }
  fail_late(name_of(to), name_of(from), tag, patience_);
}

}  // namespace cleave
