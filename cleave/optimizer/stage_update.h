#pragma once

#include <memory>
#include <vector>

#include "cleave/optimizer/bucket_sums.h"
#include "cleave/optimizer/optimizer.h"
#include "cleave/shard_states.h"
#include "cleave/units.h"

namespace cleave {

// How a stage gets from its gradients to its new weights, together with the
// same stage of other replicas. Once per step, in this order: add() for every
// microbatch, ready() for some parameters, begin(), finish(), norms() and
// scale() where gradients are clipped, step(). Used by one thread at a time.
class StageUpdate {
 public:
  virtual ~StageUpdate() = default;

  // The stage has the gradients of one more microbatch.
  virtual void add() {}

  // The parameter's gradient will not change any more. Need not be said of all.
  virtual void ready(const at::Tensor& /*parameter*/) {}

  // The stage has all its gradients; a replica that had nothing to compute has
  // none. Sends them, and returns at once.
  virtual void begin() {}

  // Waits until the gradients are those of all replicas, of which none has more
  // than so many microbatches.
  virtual void finish(int /*microbatches*/) {}

  // Of the gradients; the norm of these is that of all. The same bits on every
  // replica.
  virtual std::vector<at::Tensor> norms() = 0;

  virtual void scale(const at::Tensor& factor) = 0;

  // Updates the parameters, on every replica to the same bits, and drops the
  // gradients.
  virtual void step(double learning_rate) = 0;

  // What the optimizer keeps between steps, here.
  virtual Bytes states() const = 0;
};

// Borrows the mirrors' transport, which must outlive it. With shards, a replica
// keeps the optimizer's states of its own section of the parameters only; with
// Shard::gradients also their gradients, which are added up after every
// microbatch.
std::unique_ptr<StageUpdate> make_stage_update(
    const OptimizerKind& optimizer,
    const std::vector<at::Tensor>& parameters,
    const Mirrors& mirrors,
    Shard shard);

}  // namespace cleave
