#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/data/dataset.h"
#include "cleave/device/memory.h"
#include "cleave/schedule/simulate.h"
#include "cleave/schedule/turns.h"
#include "cleave/stage/stage.h"
#include "cleave/train/lending.h"
#include "cleave/units.h"

namespace cleave {

// One pass of a batch through the pipeline, as every rank is told of it.
struct Pass {
  // What every rank does. Shared by the ranks of this process, which all read
  // it.
  std::shared_ptr<const std::vector<SharedRow>> rows;
  std::vector<Batch> microbatches;  // the first stage reads the inputs, the
                                    // last one the targets; may be none
  int first = 0;  // of them, counted over the batches of all replicas
  int most = 0;   // microbatches that any replica has
  const Loss* loss = nullptr;
  std::int64_t count = 0;  // the loss's count over the whole batch
  std::uint64_t seed = 0;
  std::int64_t step = 0;  // counts from 1
  bool traced = false;    // when every action ran is wanted
};

// When an action ran, on the host's clock, and who did it.
struct TimedAction {
  Span span;
  Rank by;  // in the pipeline
};

// What came of one rank's row.
struct PassResult {
  double loss_sum = 0;       // with the last stage: over all microbatches
  std::int64_t correct = 0;  // with it, evaluating classes: right answers
  Seconds busy;              // computing, not waiting
  std::vector<TimedAction> timed_actions;  // where the pass is traced: every
                                           // action, and updates
};

// A shared parameter that stages beside this one use too. Gradients of every
// microbatch pass from the last stage that uses it, stage by stage, to the
// owner; each adds its own, in the order autograd would.
struct TieLink {
  int index = 0;  // which tie of the model
  at::Tensor parameter;
  std::optional<StageId> later;    // the next stage that uses it, if any
  std::optional<StageId> earlier;  // the stage before; the owner has none
};

// A stage of this rank, as the executor runs it.
struct StagePart {
  StageId id;
  Stage* stage = nullptr;
  std::vector<TieLink> ties;
};

// Who hears how gradients get ready while a row runs; empty where nobody does.
// Of different stages possibly at the same time, where ranks lend.
struct GradientListener {
  // The parameter's gradient is that of all microbatches. Not called for every
  // parameter.
  std::function<void(StageId, const at::Tensor& parameter)> parameter_done;

  // The stage has the gradients of one more microbatch, by the work of that
  // rank; whether these are all.
  std::function<void(StageId, bool all, Rank by)> microbatch_done;
};

// Runs one rank's row of a schedule on its stages.
class Executor : private RowWorker {
 public:
  // `placement`: the rank of every stage. `lending`: lets others help with the
  // row, and this rank with theirs; null: it does its row alone and in order.
  // Borrows all it is given, which must outlive it; the transport must be
  // thread-safe where ranks lend.
  Executor(std::vector<StagePart> parts,
           std::vector<Rank> placement,
           Transport& transport,
           Lending* lending);

  // Does what the row says. Training: forwards keep what backwards need;
  // otherwise gradients are off. An exception in an action becomes an Error
  // that names stage, microbatch and action. One call at a time.
  PassResult run(const Pass& pass, const GradientListener& listener = {});

  // Where ranks lend, helps others until the step's rows have ended: before
  // waiting for something that comes after them.
  void help(std::int64_t step);

 private:
  // What belongs to one microbatch in one stage.
  using Key = std::pair<StageId, Microbatch>;
  using Held = std::map<Key, Values>;

  void take(const SharedAction& action, Rank by) override;
  void act(const SharedAction& action, Rank by) override;
  bool has_received(const SharedAction& action) const override;
  [[noreturn]] void fail_timed_out(const SharedAction& action,
                                   Seconds patience) const override;

  void tell_if_it_adds(const SharedAction& action, Rank by);
  void begin(const SharedRow& row);
  GradientFound found_in(const SharedAction& action) const;
  void trace(const Action& action, Rank by, const std::function<void()>& work);
  void pass_message(const Action& action);
  std::pair<Rank, Tag> source_of(const Action& receive) const;
  Values receive(const Action& action);
  void compute(const SharedAction& action);
  void forward(const Key& key);
  void evaluate(Microbatch microbatch, const Values& outputs);
  void backward(const SharedAction& action);
  void hand_on(const Key& key, Values outputs);
  void hand_back(const Key& key, Values gradients);
  void hold(Held& where, const Key& key, Values values);
  Values take(Held& from, const Key& key);
  const StagePart& part(StageId stage) const;
  bool is_last(StageId stage) const {
    return stage.value + 1 == std::ssize(placement_);
  }
  Rank rank_of(int stage) const { return placement_.at(stage); }
  Tag gradient_tag(const TieLink& tie,
                   StageId receiver,
                   Microbatch microbatch) const;

  std::vector<StagePart> parts_;
  std::vector<Rank> placement_;
  Transport& transport_;
  Lending* lending_;

  // Of the current row; nobody changes them while it runs.
  const Pass* pass_ = nullptr;
  const GradientListener* listener_ = nullptr;
  std::shared_ptr<DeviceMemory> memory_;  // the rank's, also where others help
  bool training_ = false;                 // it has backwards

  std::mutex mutex_;  // guards all below
  PassResult result_;
  std::map<Microbatch, double> losses_;

  // Between the action that made them and the one that takes them, by the
  // stage that takes them.
  Held values_;
  Held gradients_;
  // The same, to be sent, by the stage that made them.
  Held values_to_send_;
  Held gradients_to_send_;
};

// Throws Error that says in which action of a stage something went wrong.
[[noreturn]] void fail_in(const Action& action,
                          const Stage& stage,
                          const std::exception& error);

// Which message carries a shared parameter of this tie to this stage.
Tag tie_tag(Channel channel,
            const TieLink& tie,
            StageId receiver,
            int stages,
            Microbatch microbatch = {});

}  // namespace cleave
