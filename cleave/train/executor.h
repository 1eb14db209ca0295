#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/data/dataset.h"
#include "cleave/schedule/schedule.h"
#include "cleave/train/stage.h"
#include "cleave/units.h"

namespace cleave {

// One pass of a batch through the pipeline, as every rank is told of it.
struct Pass {
  // What to do, with messages. Shared by the ranks of this process, which all
  // read it.
  std::shared_ptr<const Schedule> schedule;
  std::vector<Batch> microbatches;  // the first stage reads the inputs, the
                                    // last one the targets
  const Loss* loss = nullptr;
  std::int64_t count = 0;  // the loss's count over the whole batch
  std::uint64_t seed = 0;
  std::int64_t step = 0;  // counts from 1
};

// What one rank found.
struct PassResult {
  double loss_sum = 0;       // last stage: over all microbatches
  std::int64_t correct = 0;  // last stage, judging classes: right answers
  Seconds busy;              // computing, not waiting
};

// A shared parameter that stages beside this one use too. Gradients of every
// microbatch pass from the last stage that uses it, stage by stage, to the
// owner; each adds its own, in the order autograd would.
struct TieLink {
  int index = 0;  // which tie of the model
  at::Tensor parameter;
  std::optional<Rank> later;    // the next stage that uses it, if any
  std::optional<Rank> earlier;  // the stage before; the owner has none
};

// Runs one rank's row of a schedule on its stage. Used by one thread.
class Executor {
 public:
  // Rank r runs stage r. Borrows stage and transport, which must outlive it.
  Executor(Stage& stage, Transport& transport, std::vector<TieLink> ties);

  // Does what the row says, in order. Training: forwards keep what backwards
  // need; otherwise gradients are off. An exception in an action becomes an
  // Error that names stage, microbatch and action.
  PassResult run(const Pass& pass);

 private:
  void act(const Action& action, const Pass& pass, PassResult& result);
  void pass_message(const Action& action);
  void forward(Microbatch microbatch, const Pass& pass, PassResult& result);
  void judge(Microbatch microbatch,
             const Values& outputs,
             const Pass& pass,
             PassResult& result);
  void backward(Microbatch microbatch);
  bool is_first() const { return transport_.rank().value == 0; }
  bool is_last() const {
    return transport_.rank().value == transport_.ranks() - 1;
  }
  Rank neighbour(int offset) const {
    return {transport_.rank().value + offset};
  }

  Stage& stage_;
  Transport& transport_;
  std::vector<TieLink> ties_;
  bool training_ = false;  // the current row has backwards

  // Between the action that made them and the one that takes them.
  std::map<Microbatch, Values> received_values_;
  std::map<Microbatch, Values> values_to_send_;
  std::map<Microbatch, Values> received_gradients_;
  std::map<Microbatch, Values> gradients_to_send_;
};

}  // namespace cleave
