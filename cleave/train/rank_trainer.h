#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/mesh.h"
#include "cleave/optimizer/learning_rate.h"
#include "cleave/optimizer/optimizer.h"
#include "cleave/optimizer/stage_update.h"
#include "cleave/plan/plan.h"
#include "cleave/train/executor.h"

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
  Bytes bucket{8 << 20};   // gradients that replicas add up together, at least
};

struct StepResult : PassResult {
  std::optional<double> gradient_norm;  // of all stages, where clipping is on
  Bytes peak_memory;                    // of the rank's device, so far
};

// One rank's part of the training: its stages, their optimizers, its place in
// the mesh. The same code runs on a thread of this process or, with another
// transport, in a process of its own. Used by one thread.
class RankTrainer {
 public:
  // `lending`: with whom it works on rows; null: alone. Must outlive it.
  RankTrainer(const Model& model,
              const Plan& plan,
              const TrainerOptions& options,
              std::unique_ptr<Transport> transport,
              Lending* lending = nullptr);

  // Which copy of the pipeline it works in.
  int replica() const { return mesh_.replica_of(transport_->rank()); }

  // One optimizer step over the pass, which is the replica's part of the batch.
  // Without clipping, a stage is updated as soon as it has its gradients.
  StepResult train(const Pass& pass);

  // The pass through the pipeline without learning from it.
  StepResult evaluate(const Pass& pass);

  // Copies of the weights and buffers of this rank's stages, with full names.
  // Of equal replicas only the first one answers.
  std::map<StageId, NamedTensors> state();

  // A number from the bits of its weights.
  std::uint64_t fingerprint() const;

  // What its optimizers keep between steps.
  Bytes optimizer_states() const;

 private:
  struct OwnStage {
    OwnStage(const Model& model, const Plan& plan, StageId stage);

    StageId id;
    Stage stage;
    std::vector<TieLink> ties;
    std::vector<at::Tensor> parameters;
    std::unique_ptr<StageUpdate> update;
    TimedAction updated;  // the last time
  };

  bool is_mirrored() const { return mesh_.replicas > 1; }
  OwnStage& own(StageId stage);
  std::vector<StagePart> parts();
  void finish_sums(const Pass& pass);
  void clip_gradients(StepResult& result);
  void share_buffers();
  at::Tensor global_norm(const std::vector<at::Tensor>& own_norms);
  void update(OwnStage& own, double learning_rate, Rank by);
  static void in_update(const OwnStage& own, const std::function<void()>& work);
  bool is_given_values() const;
  void share_tied_values();

  TrainerOptions options_;
  std::unique_ptr<Transport> transport_;
  Mesh mesh_;
  std::unique_ptr<Transport> pipeline_;  // the own one
  std::unique_ptr<Transport> mirrors_;   // those in the own place
  std::vector<Rank> placement_;
  std::deque<OwnStage> stages_;  // ascending; a deque: others point at them
  std::optional<Executor> executor_;
};

}  // namespace cleave
