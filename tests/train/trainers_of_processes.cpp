#include "mpi_ranks.h"
#include "reference.h"
#include "trainers.h"

namespace cleave {

int most_ranks() {
  return test_hub().ranks();
}

Trainer trainer_of(const Model& model,
                   const Plan& plan,
                   const TrainerOptions& options) {
  return {model, plan, test_devices(test_hub().ranks()), options, test_hub()};
}

bool gets_all_stages() {
  return test_hub().rank() == Rank{0};
}

}  // namespace cleave
