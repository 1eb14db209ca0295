#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/data/dataset.h"
#include "cleave/model/stage.h"
#include "cleave/schedule/schedule.h"
#include "cleave/schedule/simulate.h"
#include "cleave/units.h"

namespace cleave {

// One pass of a batch through the pipeline, as every rank is told of it.
struct Pass {
  // What to do, with messages. Shared by the ranks of this process, which all
  // read it.
  std::shared_ptr<const Schedule> schedule;
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

// What one rank found.
struct PassResult {
  double loss_sum = 0;       // with the last stage: over all microbatches
  std::int64_t correct = 0;  // with it, judging classes: right answers
  Seconds busy;              // computing, not waiting
  std::vector<Span> spans;   // where the pass is traced: every action, on the
                             // host's clock
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
struct GradientListener {
  // The parameter's gradient is that of all microbatches. Not called for every
  // parameter.
  std::function<void(StageId, const at::Tensor& parameter)> parameter_done;

  // The stage has the gradients of one more microbatch; whether these are all.
  std::function<void(StageId, bool all)> microbatch_done;
};

// Runs one rank's row of a schedule on its stages. Used by one thread.
class Executor {
 public:
  // `placement`: the rank of every stage. Borrows stages and transport, which
  // must outlive it.
  Executor(std::vector<StagePart> parts,
           std::vector<Rank> placement,
           Transport& transport);

  // Does what the row says, in order. Training: forwards keep what backwards
  // need; otherwise gradients are off. An exception in an action becomes an
  // Error that names stage, microbatch and action.
  PassResult run(const Pass& pass, const GradientListener& listener = {});

 private:
  // What belongs to one microbatch in one stage.
  using Key = std::pair<StageId, Microbatch>;
  using Held = std::map<Key, Values>;

  void begin(const Row& row);
  GradientFound found_in(size_t position,
                         const Action& action,
                         const GradientListener& listener) const;
  bool completes_gradients(const Action& action) const;
  void act(const Action& action, const Pass& pass, PassResult& result);
  void pass_message(const Action& action);
  Values receive(Rank from, const Tag& tag);
  void compute(const Action& action, const Pass& pass, PassResult& result);
  void forward(const Key& key, const Pass& pass, PassResult& result);
  void judge(Microbatch microbatch,
             const Values& outputs,
             const Pass& pass,
             PassResult& result);
  void backward(const Key& key);
  void hand_on(const Key& key, Values outputs);
  void hand_back(const Key& key, Values gradients);
  StagePart& part(StageId stage);
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

  // Of the current row.
  bool training_ = false;              // it has backwards
  std::set<Key> weights_later_;        // it has a W for them
  std::map<StageId, size_t> last_of_;  // where a stage's gradients are done
  GradientFound found_;  // who hears of the current action's gradients

  // Between the action that made them and the one that takes them, by the
  // stage that takes them.
  Held values_;
  Held gradients_;
  // The same, to be sent, by the stage that made them.
  Held values_to_send_;
  Held gradients_to_send_;
};

// Which message carries a shared parameter of this tie to this stage.
Tag tie_tag(Channel channel,
            const TieLink& tie,
            StageId receiver,
            int stages,
            Microbatch microbatch = {});

}  // namespace cleave
