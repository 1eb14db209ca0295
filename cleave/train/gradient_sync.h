#pragma once

#include <optional>
#include <vector>

#include "cleave/comm/collectives.h"
#include "cleave/ids.h"

namespace cleave {

// Adds up the gradients of one stage over its replicas. All of them then have
// the same bits. Used by the rank's thread.
class GradientSync {
 public:
  // Borrows `mirrors`, which must outlive it.
  GradientSync(Transport& mirrors,
               std::vector<at::Tensor> parameters,
               StageId stage);

  // Sends the gradients as they are now; they may go on changing elsewhere
  // meanwhile, but not here.
  void begin();

  // Waits for those of the others. The parameters have the sums then; one that
  // has a gradient on no replica still has none.
  void finish();

 private:
  Transport& mirrors_;
  std::vector<at::Tensor> parameters_;
  StageId stage_;
  at::Tensor flat_;  // all gradients, and then, per parameter, who has one
  std::optional<Sum> sum_;
};

}  // namespace cleave
