#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/device/memory.h"
#include "cleave/train/action_performer.h"
#include "cleave/train/own_stage.h"
#include "cleave/train/pass.h"

namespace cleave {

// Does the actions of one rank, each when it is told to: a Runner says which is
// next (runner.h). Actions that the schedule's order allows at the same time
// may be done by several threads at the same time.
class Executor : public ActionPerformer {
 public:
  // `placement`: the rank of every stage. Borrows all it is given, which must
  // outlive it; the transport must be thread-safe where ranks steal work.
  Executor(std::deque<OwnStage>& stages,
           std::vector<Rank> placement,
           Transport& pipeline,
           Transport& mirrors);

  // Starts a pass. With backwards in its row, forwards keep what these need;
  // otherwise gradients are off.
  void begin(const Pass& pass);

  // Sums of gradients right behind the action may begin inside it. An exception
  // becomes an Error that names stage, microbatch and action.
  void perform(const Row& row, std::size_t position, Rank by) override;
  bool has_arrived(const Action& receive) const override;
  [[noreturn]] void fail_late(const Action& receive,
                              Seconds patience) const override;

  // What came of the pass. REQUIRES: all its actions are done.
  PassResult finish();

 private:
  // What belongs to one microbatch in one stage.
  using Key = std::pair<StageId, int>;
  using Held = std::map<Key, Values>;

  // What is done for an action, which stands at this position of the row.
  using Work = void (Executor::*)(const Row& row, std::size_t position);
  static Work work_of(Op op);

  void forward(const Row& row, std::size_t position);
  void backward(const Row& row, std::size_t position);
  void weight(const Row& row, std::size_t position);
  void reduce(const Row& row, std::size_t position);
  void norm(const Row& row, std::size_t position);
  void update(const Row& row, std::size_t position);
  void receive_values(const Row& row, std::size_t position);
  void send_values(const Row& row, std::size_t position);
  void receive_gradients(const Row& row, std::size_t position);
  void send_gradients(const Row& row, std::size_t position);
  void receive_tied_gradients(const Row& row, std::size_t position);
  void send_tied_gradients(const Row& row, std::size_t position);
  void receive_tied_weights(const Row& row, std::size_t position);
  void send_tied_weights(const Row& row, std::size_t position);
  void reduce_norm(const Row& row, std::size_t position);
  void receive_norms(const Row& row, std::size_t position);
  void send_norms(const Row& row, std::size_t position);
  void gather_weights(const Row& row, std::size_t position);
  void share_buffers(const Row& row, std::size_t position);

  void timed(const Action& action, Rank by, const std::function<void()>& work);
  void record(const Action& action, Seconds start, Seconds end, Rank by);

  void evaluate(const Key& key, const Values& outputs);
  static Values given_to(StageId stage,
                         const std::vector<StageId>& stages,
                         Values& values);
  void hand_on(const Key& key, const Values& outputs);
  void hand_back(const Key& key, const Values& gradients);
  GradientFound begin_sums_behind(const Row& row, std::size_t position);

  void begin_sum(const Action& action);
  void finish_sums(OwnStage& own);
  at::Tensor norms_of(StageId stage);
  at::Tensor clip_factor();
  void take_tied_gradients(const Key& key);

  std::vector<std::pair<Rank, Tag>> sources_of(const Action& receive) const;
  std::vector<std::pair<Rank, Tag>> tie_sources_of(const Action& receive) const;
  Values receive(const Action& action);
  // Behind what is held there already: that of another source.
  void hold(Held& where, const Key& key, const Values& values);
  Values take(Held& from, const Key& key);
  OwnStage& own(StageId stage) const;
  const Order& order() const { return pass_->schedule->order(); }
  const StageGraph& graph() const { return pass_->schedule->schedule().graph; }
  const Synchronisation& synchronisation() const {
    return pass_->schedule->schedule().synchronisation;
  }
  bool is_last(StageId stage) const { return graph().readers(stage).empty(); }
  Rank rank_of(StageId stage) const { return placement_.at(stage.value); }
  Tag tie_tag(Channel channel,
              const TieLink& tie,
              StageId receiver,
              int microbatch = 0) const;

  std::deque<OwnStage>& stages_;
  std::vector<Rank> placement_;
  Transport& pipeline_;
  Transport& mirrors_;

  // Of the current pass; constant while it runs.
  const Pass* pass_ = nullptr;
  std::shared_ptr<DeviceMemory> memory_;  // the rank's, whichever thread works
  bool training_ = false;                 // it has backwards

  std::mutex mutex_;  // guards all below
  PassResult result_;
  std::map<int, double> losses_;         // by microbatch
  std::map<StageId, at::Tensor> norms_;  // of all stages
  std::optional<at::Tensor> clip_factor_;
  std::map<std::pair<StageId, int>, Seconds> sums_;  // begun, and when

  // Between the action that made them and the one that takes them, by the
  // stage that takes them.
  Held values_;
  Held gradients_;
  Held tied_gradients_;
  // The same, to be sent, by the stage that made them.
  Held values_to_send_;
  Held gradients_to_send_;
  Held tied_gradients_to_send_;
};

}  // namespace cleave
