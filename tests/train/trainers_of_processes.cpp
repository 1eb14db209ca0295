// A rank of an MPI job: every rank runs all tests, in the same order.
#include <gtest/gtest.h>

#include <iostream>

#include "cleave/comm/mpi.h"
#include "reference.h"
#include "trainers.h"

namespace cleave {
namespace {

MpiHub* hub = nullptr;  // of main()

}  // namespace

int most_ranks() {
  return hub->ranks();
}

Trainer trainer_of(const Model& model,
                   const Plan& plan,
                   const TrainerOptions& options) {
  return {model, plan, test_devices(hub->ranks()), options, *hub};
}

bool gets_all_stages() {
  return hub->rank() == Rank{0};
}

}  // namespace cleave

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  cleave::MpiHub hub(cleave::Seconds{60});
  cleave::hub = &hub;
  if (hub.rank().value != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) {
    std::cerr << hub.name(hub.rank()) << ": tests failed\n";
  }
  return failed;
}
