#include "cleave/train/rank_trainer.h"

#include <torch/types.h>

#include <utility>

#include "cleave/comm/group.h"

namespace cleave {

RankTrainer::RankTrainer(const Model& model,
                         const Plan& plan,
                         const Training& training,
                         std::unique_ptr<Transport> transport,
                         Runner& runner)
    : transport_(std::move(transport)),
      mesh_(mesh_of(plan)),
      pipeline_(group_of(*transport_, mesh_.pipeline_of(transport_->rank()))),
      mirrors_(group_of(*transport_, mesh_.mirrors_of(transport_->rank()))),
      runner_(runner) {
  for (StageId id; id.value < std::ssize(plan.stages); ++id.value) {
    if (plan.stages[id.value].rank == pipeline_->rank()) {
      stages_.emplace_back(model, plan, id, training, *mirrors_);
    }
  }
  executor_.emplace(stages_, placement_of(plan), *pipeline_, *mirrors_);
}

PassResult RankTrainer::run(const Pass& pass) {
  executor_->begin(pass);
  runner_.run(pipeline_->rank(), pass, *executor_);
  return executor_->finish();
}

Bytes RankTrainer::optimizer_states() const {
  Bytes all;
  for (const OwnStage& own : stages_) {
    all += own.update->states();
  }
  return all;
}

std::uint64_t RankTrainer::fingerprint() const {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const OwnStage& own : stages_) {
    for (const auto& parameter : own.parameters) {
      const at::Tensor values = parameter.value.detach().contiguous();
      const auto* const bytes =
          static_cast<const unsigned char*>(values.const_data_ptr());
      for (std::size_t i = 0; i < values.nbytes(); ++i) {
        hash = (hash ^ bytes[i]) * 1099511628211U;
      }
    }
  }
  return hash;
}

std::map<StageId, NamedTensors> RankTrainer::state() {
  transport_->note({"save", {}, {}});
  std::map<StageId, NamedTensors> copies;
  if (replica() > 0) {
    return copies;
  }
  for (const OwnStage& own : stages_) {
    for (const auto& [name, tensor] : own.stage.network().state()) {
      copies[own.id].emplace_back(name, tensor.detach().clone());
    }
  }
  return copies;
}

}  // namespace cleave
