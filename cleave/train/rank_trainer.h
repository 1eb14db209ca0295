#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/plan/plan.h"
#include "cleave/train/executor.h"
#include "cleave/train/learning_rate.h"
#include "cleave/train/optimizer.h"

namespace cleave {

// How to train; the same on every rank.
struct TrainerOptions {
  Loss loss = cross_entropy;
  OptimizerKind optimizer = AdamW{};
  LearningRate learning_rate;
  double clip = 0;  // largest norm of all gradients; 0: any
  Precision precision = Precision::fp32;
  std::uint64_t seed = 0;  // of dropout and the order of the data
  Seconds patience{300};   // with a peer that sends nothing
};

struct StepResult : PassResult {
  std::optional<double> gradient_norm;  // of all stages, where clipping is on
};

// One rank's part of the training: its stages, their optimizers, its place in
// the plan. The same code runs on a thread of this process or, with another
// transport, in a process of its own. Used by one thread.
class RankTrainer {
 public:
  RankTrainer(const Model& model,
              const Plan& plan,
              const TrainerOptions& options,
              std::unique_ptr<Transport> transport);

  // One optimizer step over the pass's batch. Without clipping, a stage is
  // updated as soon as it has its gradients.
  StepResult train(const Pass& pass);

  // The batch through the pipeline without learning from it.
  StepResult evaluate(const Pass& pass);

  // Copies of the weights and buffers of this rank's stages, with full names.
  std::map<StageId, NamedTensors> state() const;

 private:
  struct OwnStage {
    OwnStage(const Model& model, const Plan& plan, StageId stage);

    StageId id;
    Stage stage;
    std::vector<TieLink> ties;
    std::vector<at::Tensor> parameters;
    std::unique_ptr<Optimizer> optimizer;
  };

  std::vector<StagePart> parts();
  void clip_gradients(StepResult& result);
  at::Tensor global_norm(const std::vector<at::Tensor>& own_norms);
  void update(OwnStage& own, double learning_rate, Seconds& busy);
  void share_tied_values();

  TrainerOptions options_;
  std::unique_ptr<Transport> transport_;
  std::vector<Rank> placement_;
  std::deque<OwnStage> stages_;  // ascending; a deque: others point at them
  std::optional<Executor> executor_;
};

}  // namespace cleave
