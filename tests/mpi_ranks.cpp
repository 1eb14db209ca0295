#include "mpi_ranks.h"

#include <gtest/gtest.h>

#include <iostream>

namespace cleave {
namespace {

MpiWorld* world = nullptr;  // of main()

}  // namespace

MpiWorld& test_world() {
  return *world;
}

}  // namespace cleave

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  cleave::MpiWorld world(cleave::Seconds{60});
  cleave::world = &world;
  if (world.rank().value != 0) {  // one of them tells
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) {
    std::cerr << world.name(world.rank()) << ": tests failed\n";
  }
  return failed;
}
