#include "mpi_ranks.h"
#include "reference.h"
#include "trainers.h"

namespace cleave {

int most_ranks() {
  return test_world().ranks();
}

Trainer trainer_of(const Model& model,
                   const Plan& plan,
                   const Training& training) {
  return {
      model, plan, test_devices(test_world().ranks()), training, test_world()};
}

bool gets_all_stages() {
  return test_world().rank() == Rank{0};
}

}  // namespace cleave
