#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/mesh.h"
#include "cleave/train/executor.h"
#include "cleave/train/runner.h"

namespace cleave {

// One rank's part of the training: its stages, their optimizers, its place in
// the mesh. The same code runs on a thread of this process or, with another
// transport, in a process of its own. Used by one thread.
class RankTrainer {
 public:
  // `runner`: shared by the ranks of this process; must outlive it.
  RankTrainer(const Model& model,
              const Plan& plan,
              const Training& training,
              std::unique_ptr<Transport> transport,
              Runner& runner);

  // Which copy of the pipeline it works in.
  int replica() const { return mesh_.replica_of(transport_->rank()); }

  // Its row of the pass: an optimizer step over the replica's part of a batch,
  // or an evaluation.
  PassResult run(const Pass& pass);

  // Copies of the weights and buffers of this rank's stages, with full names.
  // Of equal replicas only the first one answers.
  std::map<StageId, NamedTensors> state();

  // A number from the bits of its weights.
  std::uint64_t fingerprint() const;

  // What its optimizers keep between steps.
  Bytes optimizer_states() const;

 private:
  std::unique_ptr<Transport> transport_;
  Mesh mesh_;
  std::unique_ptr<Transport> pipeline_;  // the own one
  std::unique_ptr<Transport> mirrors_;   // those in the own place
  std::deque<OwnStage> stages_;          // ascending; a deque: they stay
  std::optional<Executor> executor_;
  Runner& runner_;
};

}  // namespace cleave
