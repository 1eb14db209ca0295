#pragma once

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
  double clip = 0;         // largest norm of all gradients; 0: any
  std::uint64_t seed = 0;  // of dropout and the order of the data
  Seconds patience{300};   // with a peer that sends nothing
};

struct StepResult : PassResult {
  std::optional<double> gradient_norm;  // of all stages, where clipping is on
};

// One rank's part of the training: its stage, its optimizer, its place in the
// plan. The same code runs on a thread of this process or, with another
// transport, in a process of its own. Used by one thread.
class RankTrainer {
 public:
  RankTrainer(const Model& model,
              const Plan& plan,
              const TrainerOptions& options,
              std::unique_ptr<Transport> transport);

  // One optimizer step over the pass's batch.
  StepResult train(const Pass& pass);

  // The batch through the pipeline without learning from it.
  StepResult evaluate(const Pass& pass);

  // Copies of this stage's weights and buffers, with full names.
  NamedTensors state() const;

 private:
  std::vector<TieLink> find_ties(const Model& model, const Plan& plan) const;
  void clip_gradients(StepResult& result);
  at::Tensor global_norm(const at::Tensor& own_norms);
  void update(double learning_rate, StepResult& result);
  void share_tied_values();

  TrainerOptions options_;
  std::unique_ptr<Transport> transport_;
  Stage stage_;
  std::vector<TieLink> ties_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  Executor executor_;
};

}  // namespace cleave
