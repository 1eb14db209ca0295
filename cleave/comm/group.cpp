#include "cleave/comm/group.h"

#include <algorithm>

namespace cleave {
namespace {

class GroupTransport : public Transport {
 public:
  GroupTransport(Transport& all, std::vector<Rank> members)
      : all_(all),
        members_(std::move(members)),
        place_(static_cast<int>(std::ranges::find(members_, all.rank()) -
                                members_.begin())) {}

  Rank rank() const override { return {place_}; }
  int ranks() const override { return static_cast<int>(members_.size()); }
  void send(Rank to, const Tag& tag, Message message) override {
    all_.send(members_.at(to.value), tag, std::move(message));
  }
  Message receive(Rank from, const Tag& tag) override {
    return all_.receive(members_.at(from.value), tag);
  }
  bool has(Rank from, const Tag& tag) override {
    return all_.has(members_.at(from.value), tag);
  }
  void expect(Rank from, const Tag& tag, const Message& into) override {
    all_.expect(members_.at(from.value), tag, into);
  }
  void note(const Activity& doing) override { all_.note(doing); }

 private:
  Transport& all_;
  std::vector<Rank> members_;
  int place_;
};

}  // namespace

std::unique_ptr<Transport> group_of(Transport& all, std::vector<Rank> members) {
  return std::make_unique<GroupTransport>(all, std::move(members));
}

}  // namespace cleave
