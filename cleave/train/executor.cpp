#include "cleave/train/executor.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cleave/comm/collectives.h"
#include "cleave/device/clock.h"
#include "cleave/error.h"

namespace cleave {

Executor::Executor(std::deque<OwnStage>& stages,
                   std::vector<Rank> placement,
                   Transport& pipeline,
                   Transport& mirrors)
    : stages_(stages),
      placement_(std::move(placement)),
      pipeline_(pipeline),
      mirrors_(mirrors) {}

void Executor::begin(const Pass& pass) {
  pass_ = &pass;
  memory_ = MemoryScope::current();
  losses_.clear();
  norms_.clear();
  clip_factor_.reset();
  for (Held* const held : {&values_,
                           &gradients_,
                           &tied_gradients_,
                           &values_to_send_,
                           &gradients_to_send_,
                           &tied_gradients_to_send_}) {
    held->clear();  // of a pass that failed
  }
  training_ = order().has_backward();
  const Row& row = pass.schedule->row(pipeline_.rank());
  for (OwnStage& own : stages_) {
    own.stage.network().train(training_);
    own.stage.begin(std::ranges::any_of(row, [&](const Action& action) {
      return action.op == Op::weight && action.stage == own.id;
    }));
  }
}

void Executor::perform(const Row& row, std::size_t position, Rank by) {
  const MemoryScope memory(memory_);
  const torch::AutoGradMode gradients(training_);
  const Action& action = row[position];
  timed(action, by, [&] { (this->*work_of(action.op))(row, position); });
}

PassResult Executor::finish() {
  // In their order, whoever found them when.
  for (const auto& [microbatch, loss] : losses_) {
    result_.loss_sum += loss;
  }
  result_.peak_memory = MemoryScope::current()->peak();
  return std::exchange(result_, {});
}

Executor::Work Executor::work_of(Op op) {
  struct Entry {
    Op op;
    Work work;
  };
  static constexpr std::array kTable{
      Entry{Op::forward, &Executor::forward},
      Entry{Op::backward, &Executor::backward},
      Entry{Op::weight, &Executor::weight},
      Entry{Op::reduce, &Executor::reduce},
      Entry{Op::norm, &Executor::norm},
      Entry{Op::update, &Executor::update},
      Entry{Op::receive_values, &Executor::receive_values},
      Entry{Op::send_values, &Executor::send_values},
      Entry{Op::receive_gradients, &Executor::receive_gradients},
      Entry{Op::send_gradients, &Executor::send_gradients},
      Entry{Op::receive_tied_gradients, &Executor::receive_tied_gradients},
      Entry{Op::send_tied_gradients, &Executor::send_tied_gradients},
      Entry{Op::receive_tied_weights, &Executor::receive_tied_weights},
      Entry{Op::send_tied_weights, &Executor::send_tied_weights},
      Entry{Op::reduce_norm, &Executor::reduce_norm},
      Entry{Op::receive_norms, &Executor::receive_norms},
      Entry{Op::send_norms, &Executor::send_norms},
      Entry{Op::gather_weights, &Executor::gather_weights},
      Entry{Op::share_buffers, &Executor::share_buffers},
  };
  static_assert(has_every_op(kTable));
  return kTable.at(static_cast<std::size_t>(op)).work;
}

// Does the work of an action, notes it, and says what went wrong with it.
void Executor::timed(const Action& action,
                     Rank by,
                     const std::function<void()>& work) {
  const OpTraits& kind = traits(action.op);
  std::optional<Microbatch> microbatch;
  if (kind.index == IndexOf::microbatch) {
    microbatch = Microbatch{action.index};
  }
  pipeline_.note({kind.words.data(), action.stage, microbatch});
  const Seconds start = steady_now();
  try {
    work();
  } catch (const std::exception& error) {
    fail_in(action, own(action.stage).stage, error);
  }
  const Seconds end = steady_now();
  const std::lock_guard lock(mutex_);
  if (kind.lane == Lane::compute) {
    result_.busy += end - start;
  }
  if (action.op != Op::reduce) {  // finish_sums() records these
    record(action, start, end, by);
  }
}

// REQUIRES: the mutex is locked.
void Executor::record(const Action& action,
                      Seconds start,
                      Seconds end,
                      Rank by) {
  if (pass_->traced) {
    result_.timed_actions.push_back({{action, start, end}, by});
  }
}

void Executor::forward(const Row& row, std::size_t position) {
  const auto& [op, stage, microbatch, step] = row[position];
  const Key key{stage, microbatch};
  const Batch& batch = pass_->microbatches.at(microbatch);
  // A layer that changes its input in place must not have changed those of
  // other microbatches, which are parts of the same tensor, for autograd.
  Values inputs = graph().sources(stage).empty()
                      ? Values{batch.inputs.variable_data()}
                      : take(values_, key);
  const Moment moment{
      pass_->seed, pass_->step, Microbatch{pass_->first + microbatch}};
  Stage& runs = own(stage).stage;
  if (!training_) {
    evaluate(key, runs.network().forward(std::move(inputs), moment));
    return;
  }
  const Microbatch number{microbatch};
  if (!is_last(stage)) {
    hand_on(key, runs.forward(number, std::move(inputs), moment, {}));
    return;
  }
  const double weight =
      1.0 / static_cast<double>(std::max<std::int64_t>(1, pass_->count));
  runs.forward(number,
               std::move(inputs),
               moment,
               Goal{pass_->loss, batch.targets, weight});
  const std::lock_guard lock(mutex_);
  losses_[microbatch] = runs.loss(number);
}

void Executor::evaluate(const Key& key, const Values& outputs) {
  const auto [stage, microbatch] = key;
  if (!is_last(stage)) {
    hand_on(key, outputs);
    return;
  }
  const at::Tensor& targets = pass_->microbatches.at(microbatch).targets;
  const auto loss = pass_->loss->sum(outputs.at(0), targets).item<double>();
  const std::int64_t correct =
      targets.is_floating_point()
          ? 0
          : outputs.at(0).argmax(-1).eq(targets).sum().item<std::int64_t>();
  const std::lock_guard lock(mutex_);
  losses_[microbatch] = loss;
  result_.correct += correct;
}

void Executor::backward(const Row& row, std::size_t position) {
  const Action& action = row[position];
  const Key key{action.stage, action.index};
  OwnStage& stage = own(action.stage);
  const GradientFound found = begin_sums_behind(row, position);
  const Microbatch number{action.index};
  take_tied_gradients(key);
  hand_back(key,
            stage.stage.backward(
                number,
                is_last(action.stage) ? Values{} : take(gradients_, key),
                found));
  Values tied;
  for (const TieLink& tie : stage.ties) {
    if (tie.earlier) {
      at::Tensor parameter = tie.parameter;
      tied.push_back(parameter.grad());
      parameter.mutable_grad() = at::Tensor();
    }
  }
  if (!tied.empty()) {
    hold(tied_gradients_to_send_, key, tied);
  }
  if (!order().is_split(action.stage, action.index)) {
    stage.stage.weights(number, found);
  }
}

void Executor::weight(const Row& row, std::size_t position) {
  const Action& action = row[position];
  own(action.stage)
      .stage.weights(Microbatch{action.index},
                     begin_sums_behind(row, position));
}

// Begins the sums that stand right behind the action, in their order, as soon
// as their gradients are complete. Empty where there are none.
GradientFound Executor::begin_sums_behind(const Row& row,
                                          std::size_t position) {
  const StageId stage = row[position].stage;
  std::size_t next = position + 1;
  const auto is_sum = [&row, stage](std::size_t at) {
    return at < row.size() && row[at].op == Op::reduce &&
           row[at].stage == stage;
  };
  if (!is_sum(next) ||
      synchronisation().shard_states == ShardStates::gradients) {
    return {};
  }
  auto complete = std::make_shared<std::vector<int>>();
  return [this, &row, is_sum, stage, next, complete](
             const at::Tensor& parameter) mutable {
    const std::optional<int> bucket = own(stage).update->note(parameter);
    if (!bucket) {
      return;
    }
    complete->push_back(*bucket);
    while (is_sum(next) &&
           std::ranges::find(*complete, row[next].index) != complete->end()) {
      begin_sum(row[next]);
      ++next;
    }
  };
}

// The last of several stages takes the values, so that nothing else holds them.
Values Executor::given_to(StageId stage,
                          const std::vector<StageId>& stages,
                          Values& values) {
  return stage == stages.back() ? std::exchange(values, {}) : values;
}

void Executor::hand_on(const Key& key, const Values& outputs) {
  const auto [stage, microbatch] = key;
  if (!order().crossing_readers(stage).empty()) {
    hold(values_to_send_, key, outputs);
  }
  for (const StageId reader : graph().readers(stage)) {
    if (!order().crosses(stage, reader)) {
      hold(values_, {reader, microbatch}, outputs);
    }
  }
}

void Executor::hand_back(const Key& key, const Values& gradients) {
  const auto [stage, microbatch] = key;
  if (!order().crossing_sources(stage).empty()) {
    hold(gradients_to_send_, key, gradients);
  }
  for (const StageId source : graph().sources(stage)) {
    if (!order().crosses(source, stage)) {
      hold(gradients_, {source, microbatch}, gradients);
    }
  }
}

void Executor::hold(Held& where, const Key& key, const Values& values) {
  const std::lock_guard lock(mutex_);
  Values& held = where[key];
  held.insert(held.end(), values.begin(), values.end());
}

Values Executor::take(Held& from, const Key& key) {
  const std::lock_guard lock(mutex_);
  return std::move(from.extract(key).mapped());
}

OwnStage& Executor::own(StageId stage) const {
  return *std::ranges::find(stages_, stage, &OwnStage::id);
}

}  // namespace cleave
