// A rank of an MPI job: every rank runs all tests, in the same order.
#include <gtest/gtest.h>

#include <iostream>

#include "cleave/comm/collectives.h"
#include "cleave/comm/group.h"
#include "cleave/comm/mpi.h"
#include "ranks.h"

namespace cleave {
namespace {

MpiHub* hub = nullptr;  // of main()

}  // namespace

int most_ranks() {
  return hub->ranks();
}

void on_ranks(int count, const std::function<void(Transport&)>& body) {
  const std::unique_ptr<Transport> all = hub->connect(hub->rank());
  if (hub->rank().value < count) {
    std::vector<Rank> members;
    for (Rank rank; rank.value < count; ++rank.value) {
      members.push_back(rank);
    }
    body(*group_of(*all, members));
  }
  barrier(*all);
}

}  // namespace cleave

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  cleave::MpiHub hub(cleave::Seconds{60});
  cleave::hub = &hub;
  if (hub.rank().value != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (!testing::GTEST_FLAG(list_tests)) {
      delete listeners.Release(listeners.default_result_printer());
    }
  }
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) {
    std::cerr << hub.name(hub.rank()) << ": tests failed\n";
  }
  return failed;
}
