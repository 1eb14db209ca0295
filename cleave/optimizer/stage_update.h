#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cleave/optimizer/gradient_sums.h"
#include "cleave/optimizer/optimizer.h"
#include "cleave/policies.h"
#include "cleave/units.h"

namespace cleave {

// How a stage gets from its gradients to its new weights, together with the
// same stage of other replicas: what G, N, M, U and A of a schedule do. Used by
// one thread at a time.
class StageUpdate {
 public:
  virtual ~StageUpdate() = default;

  // The parameter has all its gradients of this replica. Returns the bucket
  // that is complete with it, if one is. Need not be called for all.
  virtual std::optional<int> note(const at::Tensor& /*parameter*/) {
    return std::nullopt;
  }

  // G: begins the sum of a bucket over the replicas, unless it has begun. Where
  // replicas keep no more than their sections: sums what there is.
  virtual void begin_sum(int /*index*/) {}

  // Waits until the gradients are those of all replicas.
  virtual void finish_sums() {}

  // N: norms of the gradients, side by side; the norm of these is that of all.
  virtual at::Tensor norms() = 0;

  // M: the norms of all replicas' gradients from those of each. The same bits
  // on every replica.
  virtual void reduce_norms(at::Tensor& /*norms*/) {}

  virtual void scale(const at::Tensor& factor) = 0;

  // U: updates the parameters that this replica owns, and drops the gradients.
  virtual void update(double learning_rate) = 0;

  // A: takes the parameters that other replicas own. REQUIRES: update() ran.
  virtual void gather_weights() {}

  // What the optimizer keeps between steps, here.
  virtual Bytes states() const = 0;
};

// Borrows the mirrors' transport, which must outlive it. With sharded states a
// replica keeps the optimizer's states of its own section of the parameters
// only; with ShardStates::gradients also their gradients. `buckets`: of layers,
// by name; every parameter must be of one of these layers.
std::unique_ptr<StageUpdate> make_stage_update(
    const MakeOptimizer& make,
    const std::vector<Parameter>& parameters,
    const Mirrors& mirrors,
    const std::vector<std::vector<std::string>>& buckets,
    ShardStates shard_states);

}  // namespace cleave
