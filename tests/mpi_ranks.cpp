#include "mpi_ranks.h"

#include <gtest/gtest.h>

#include <iostream>

namespace cleave {
namespace {

MpiHub* hub = nullptr;  // of main()

}  // namespace

MpiHub& test_hub() {
  return *hub;
}

}  // namespace cleave

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  cleave::MpiHub hub(cleave::Seconds{60});
  cleave::hub = &hub;
  if (hub.rank().value != 0) {  // one of them tells
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) {
    std::cerr << hub.name(hub.rank()) << ": tests failed\n";
  }
  return failed;
}
