#include "cleave/comm/collectives.h"
#include "cleave/comm/group.h"
#include "mpi_ranks.h"
#include "ranks.h"

namespace cleave {

int most_ranks() {
  return test_world().ranks();
}

void on_ranks(int count, const std::function<void(Transport&)>& body) {
  const std::unique_ptr<Transport> all =
      test_world().connect(test_world().rank());
  if (test_world().rank().value < count) {
    std::vector<Rank> members;
    for (Rank rank; rank.value < count; ++rank.value) {
      members.push_back(rank);
    }
    body(*group_of(*all, members));
  }
  barrier(*all);
}

}  // namespace cleave
