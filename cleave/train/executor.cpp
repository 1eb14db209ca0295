#include "cleave/train/executor.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "cleave/device/clock.h"
#include "cleave/error.h"

namespace cleave {
namespace {

const char* words_of(Op op) {
  switch (op) {
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::weight:
      return "weight gradients";
    case Op::receive_forward:
      return "receiving values";
    case Op::send_forward:
      return "sending values";
    case Op::receive_backward:
      return "receiving gradients";
    case Op::send_backward:
      return "sending gradients";
    case Op::update:
      return "update";
  }
  return "action";
}

// In a forward, the layer that fails is named; elsewhere it is known which
// could.
bool concerns_all_layers(Op op) {
  return op == Op::backward || op == Op::weight || op == Op::update;
}

}  // namespace

void fail_in(const Action& action,
             const Stage& stage,
             const std::exception& error) {
  std::string place = "stage " + std::to_string(action.stage.value);
  if (action.op != Op::update) {
    place += ", microbatch " + std::to_string(action.microbatch.value);
  }
  place += std::string(", ") + words_of(action.op);
  if (concerns_all_layers(action.op)) {
    place += " of " + stage.network().layers_text();
  }
  const auto* known = dynamic_cast<const Error*>(&error);
  fail(place + ": " + (known ? known->problem() : first_line(error)),
       known ? known->fix() : "");
}

Tag tie_tag(Channel channel,
            const TieLink& tie,
            StageId receiver,
            int stages,
            Microbatch microbatch) {
  return {channel, tie.index * stages + receiver.value, microbatch};
}

Executor::Executor(std::vector<StagePart> parts,
                   std::vector<Rank> placement,
                   Transport& transport,
                   Lending* lending)
    : parts_(std::move(parts)),
      placement_(std::move(placement)),
      transport_(transport),
      lending_(lending) {}

PassResult Executor::run(const Pass& pass, const GradientListener& listener) {
  if (!pass.rows) {
    return {};
  }
  const Rank own = transport_.rank();
  const SharedRow& row = pass.rows->at(own.value);
  pass_ = &pass;
  listener_ = &listener;
  memory_ = MemoryScope::current();
  begin(row);
  if (lending_ != nullptr) {
    lending_->run(own, pass.step, row, *this);
  } else {
    for (const SharedAction& action : row.actions) {
      if (action.action.microbatch.value < std::ssize(pass.microbatches)) {
        take(action, own);
        act(action, own);
      } else {
        tell_if_it_adds(action, own);
      }
    }
  }
  // In their order, whoever found them when.
  for (const auto& [microbatch, loss] : losses_) {
    result_.loss_sum += loss;
  }
  return std::exchange(result_, {});
}

void Executor::help(std::int64_t step) {
  if (lending_ != nullptr) {
    lending_->help(transport_.rank(), step);
  }
}

void Executor::begin(const SharedRow& row) {
  losses_.clear();
  training_ = std::ranges::any_of(
      row.actions, [](const auto& a) { return a.action.op == Op::backward; });
  for (const StagePart& part : parts_) {
    part.stage->network().train(training_);
    part.stage->begin(
        std::ranges::any_of(row.actions, [&](const SharedAction& shared) {
          return shared.split && shared.action.stage == part.id;
        }));
  }
}

void Executor::take(const SharedAction& shared, Rank by) {
  if (shared.receive) {
    const MemoryScope memory(memory_);
    trace(*shared.receive, by, [&] { pass_message(*shared.receive); });
  }
}

// Those who wait for the messages come before the stage's own update.
void Executor::act(const SharedAction& shared, Rank by) {
  const MemoryScope memory(memory_);
  const torch::AutoGradMode gradients(training_);
  trace(shared.action, by, [&] { compute(shared); });
  if (shared.send) {
    trace(*shared.send, by, [&] { pass_message(*shared.send); });
    if (lending_ != nullptr && shared.completes) {
      lending_->note_message();
    }
  }
  tell_if_it_adds(shared, by);
}

void Executor::tell_if_it_adds(const SharedAction& shared, Rank by) {
  const auto [op, microbatch, stage] = shared.action;
  const bool adds = op == Op::weight || (op == Op::backward && !shared.split);
  if (adds && listener_->microbatch_done) {
    listener_->microbatch_done(stage, shared.completes, by);
  }
}

bool Executor::has_received(const SharedAction& action) const {
  const auto [from, tag] = source_of(*action.receive);
  return transport_.has(from, tag);
}

void Executor::fail_timed_out(const SharedAction& action,
                              Seconds patience) const {
  if (!action.receive) {
    fail(name_of(transport_.rank()) + " waited " + to_text(patience) +
             " for memory that its messages take up",
         "See what the other devices are doing; give them longer with "
         "devices.patience.");
  }
  const auto [from, tag] = source_of(*action.receive);
  try {
    cleave::fail_timed_out(
        name_of(transport_.rank()), name_of(from), tag, patience);
  } catch (const Error& error) {
    fail_in(*action.receive, *part(action.receive->stage).stage, error);
  }
}

// Only a stage's last action gives gradients that stay as they are.
GradientFound Executor::found_in(const SharedAction& action) const {
  if (!listener_->parameter_done || !action.completes) {
    return {};
  }
  return [this, stage = action.action.stage](const at::Tensor& parameter) {
    listener_->parameter_done(stage, parameter);
  };
}

// Does the work of an action, tells of it, and of what goes wrong with it.
void Executor::trace(const Action& action,
                     Rank by,
                     const std::function<void()>& work) {
  transport_.note({words_of(action.op), action.stage, action.microbatch});
  const Seconds start = steady_now();
  try {
    work();
  } catch (const std::exception& error) {
    fail_in(action, *part(action.stage).stage, error);
  }
  const Seconds end = steady_now();
  const std::lock_guard lock(mutex_);
  if (is_compute(action.op)) {
    result_.busy += end - start;
  }
  if (pass_->traced) {
    result_.timed_actions.push_back({{action, start, end}, by});
  }
}

void Executor::pass_message(const Action& action) {
  const auto [op, m, stage] = action;
  const StageId next{stage.value + 1};
  const StageId previous{stage.value - 1};
  const Key key{stage, m};
  switch (op) {
    case Op::receive_forward:
      hold(values_, key, receive(action));
      break;
    case Op::send_forward:
      transport_.send(rank_of(next.value),
                      {Channel::values, next.value, m},
                      take(values_to_send_, key));
      break;
    case Op::receive_backward:
      hold(gradients_, key, receive(action));
      break;
    default:
      transport_.send(rank_of(previous.value),
                      {Channel::gradients, previous.value, m},
                      take(gradients_to_send_, key));
      break;
  }
}

// Who sends what it receives, and as what.
std::pair<Rank, Tag> Executor::source_of(const Action& receive) const {
  const auto [op, microbatch, stage] = receive;
  return op == Op::receive_forward
             ? std::pair(rank_of(stage.value - 1),
                         Tag{Channel::values, stage.value, microbatch})
             : std::pair(rank_of(stage.value + 1),
                         Tag{Channel::gradients, stage.value, microbatch});
}

Values Executor::receive(const Action& action) {
  const auto [from, tag] = source_of(action);
  Values values = transport_.receive(from, tag);
  for (at::Tensor& value : values) {
    value = received(std::move(value));
  }
  return values;
}

void Executor::compute(const SharedAction& shared) {
  const Action& action = shared.action;
  if (action.op == Op::forward) {
    forward({action.stage, action.microbatch});
  } else if (action.op == Op::weight) {
    part(action.stage).stage->weights(action.microbatch, found_in(shared));
  } else {
    // A shared parameter's gradient was sent long before the gradients that
    // the stage has already received, so waiting for it costs no time.
    backward(shared);
  }
}

void Executor::forward(const Key& key) {
  const auto [stage, microbatch] = key;
  const Batch& batch = pass_->microbatches.at(microbatch.value);
  // A layer that changes its input in place must not have changed those of
  // other microbatches, which are parts of the same tensor, for autograd.
  Values inputs = stage.value == 0 ? Values{batch.inputs.variable_data()}
                                   : take(values_, key);
  const Moment moment{
      pass_->seed, pass_->step, {pass_->first + microbatch.value}};
  Stage& own = *part(stage).stage;
  if (!training_) {
    Values outputs = own.network().forward(std::move(inputs), moment);
    if (is_last(stage)) {
      evaluate(microbatch, outputs);
    } else {
      hand_on(key, std::move(outputs));
    }
    return;
  }
  if (is_last(stage)) {
    const double weight =
        1.0 / static_cast<double>(std::max<std::int64_t>(1, pass_->count));
    own.forward(microbatch,
                std::move(inputs),
                moment,
                Goal{pass_->loss, batch.targets, weight});
    const std::lock_guard lock(mutex_);
    losses_[microbatch] = own.loss(microbatch);
  } else {
    hand_on(key, own.forward(microbatch, std::move(inputs), moment, {}));
  }
}

void Executor::evaluate(Microbatch microbatch, const Values& outputs) {
  const at::Tensor& targets = pass_->microbatches.at(microbatch.value).targets;
  const auto loss = pass_->loss->sum(outputs.at(0), targets).item<double>();
  const std::int64_t correct =
      targets.is_floating_point()
          ? 0
          : outputs.at(0).argmax(-1).eq(targets).sum().item<std::int64_t>();
  const std::lock_guard lock(mutex_);
  losses_[microbatch] = loss;
  result_.correct += correct;
}

void Executor::backward(const SharedAction& shared) {
  const Key key{shared.action.stage, shared.action.microbatch};
  const auto [stage, microbatch] = key;
  const GradientFound found = found_in(shared);
  const StagePart& own = part(stage);
  for (const TieLink& tie : own.ties) {
    if (tie.later) {
      const at::Tensor gradient =
          transport_
              .receive(rank_of(tie.later->value),
                       gradient_tag(tie, stage, microbatch))
              .at(0);
      if (gradient.defined()) {
        own.stage->add_tied_gradient(tie.parameter, gradient);
      }
    }
  }
  hand_back(
      key,
      own.stage->backward(microbatch,
                          is_last(stage) ? Values{} : take(gradients_, key),
                          found));
  for (const TieLink& tie : own.ties) {
    if (tie.earlier) {
      at::Tensor parameter = tie.parameter;
      transport_.send(rank_of(tie.earlier->value),
                      gradient_tag(tie, *tie.earlier, microbatch),
                      {parameter.grad()});
      parameter.mutable_grad() = at::Tensor();
    }
  }
  if (!shared.split) {
    own.stage->weights(microbatch, found);
  }
}

void Executor::hand_on(const Key& key, Values outputs) {
  const StageId next{key.first.value + 1};
  if (rank_of(next.value) == transport_.rank()) {
    hold(values_, {next, key.second}, std::move(outputs));
  } else {
    hold(values_to_send_, key, std::move(outputs));
  }
}

void Executor::hand_back(const Key& key, Values gradients) {
  const StageId previous{key.first.value - 1};
  if (previous.value < 0) {
    return;
  }
  if (rank_of(previous.value) == transport_.rank()) {
    hold(gradients_, {previous, key.second}, std::move(gradients));
  } else {
    hold(gradients_to_send_, key, std::move(gradients));
  }
}

void Executor::hold(Held& where, const Key& key, Values values) {
  const std::lock_guard lock(mutex_);
  where[key] = std::move(values);
}

Values Executor::take(Held& from, const Key& key) {
  const std::lock_guard lock(mutex_);
  return std::move(from.extract(key).mapped());
}

const StagePart& Executor::part(StageId stage) const {
  return *std::ranges::find(parts_, stage, &StagePart::id);
}

Tag Executor::gradient_tag(const TieLink& tie,
                           StageId receiver,
                           Microbatch microbatch) const {
  return tie_tag(Channel::tied_gradient,
                 tie,
                 receiver,
                 static_cast<int>(placement_.size()),
                 microbatch);
}

}  // namespace cleave
