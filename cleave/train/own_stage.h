#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cleave/optimizer/stage_update.h"
#include "cleave/optimizer/training.h"
#include "cleave/plan/plan.h"
#include "cleave/stage/stage.h"

namespace cleave {

// A weight that stages beside this one use too. Gradients of every microbatch
// pass from the last stage that uses it, stage by stage, to the owner; each
// adds its own, in the order autograd would.
struct TieLink {
  int index = 0;  // which tie of the model
  at::Tensor parameter;
  std::optional<StageId> later;    // the next stage that uses it, if any
  std::optional<StageId> earlier;  // the stage before; the owner has none
};

// A stage that a rank has: its layers, its update, its ties.
struct OwnStage {
  OwnStage(const Model& model,
           const Plan& plan,
           StageId stage,
           const Training& training,
           Transport& mirrors);

  StageId id;
  Stage stage;
  std::vector<TieLink> ties;
  std::vector<Parameter> parameters;
  std::unique_ptr<StageUpdate> update;
};

// Throws Error that says in which action of a stage something went wrong.
[[noreturn]] void fail_in(const Action& action,
                          const Stage& stage,
                          const std::exception& error);

}  // namespace cleave
