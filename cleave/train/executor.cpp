#include "cleave/train/executor.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "cleave/comm/clocks.h"
#include "cleave/comm/memory.h"
#include "cleave/error.h"

namespace cleave {
namespace {

const char* deed_of(Op op) {
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
  }
  return "action";
}

[[noreturn]] void fail_in(const Action& action, const std::exception& error) {
  const std::string place =
      "stage " + std::to_string(action.stage.value) + ", microbatch " +
      std::to_string(action.microbatch.value) + ", " + deed_of(action.op);
  const auto* known = dynamic_cast<const Error*>(&error);
  fail(place + ": " + (known ? known->problem() : first_line(error)),
       known ? known->fix() : "");
}

Values take(std::map<std::pair<StageId, Microbatch>, Values>& from,
            const std::pair<StageId, Microbatch>& key) {
  return std::move(from.extract(key).mapped());
}

bool makes_gradients(Op op) {
  return op == Op::backward || op == Op::weight;
}

}  // namespace

Tag tie_tag(Channel channel,
            const TieLink& tie,
            StageId receiver,
            int stages,
            Microbatch microbatch) {
  return {channel, tie.index * stages + receiver.value, microbatch};
}

Executor::Executor(std::vector<StagePart> parts,
                   std::vector<Rank> placement,
                   Transport& transport)
    : parts_(std::move(parts)),
      placement_(std::move(placement)),
      transport_(transport) {}

PassResult Executor::run(const Pass& pass, const GradientListener& listener) {
  if (pass.microbatches.empty()) {
    return {};
  }
  const Row& row = pass.schedule->rows.at(transport_.rank().value);
  begin(row);
  const torch::AutoGradMode gradients(training_);
  PassResult result;
  for (size_t position = 0; position < row.size(); ++position) {
    const Action& action = row[position];
    found_ = found_in(position, action, listener);
    try {
      act(action, pass, result);
    } catch (const std::exception& error) {
      fail_in(action, error);
    }
    if (listener.microbatch_done && completes_gradients(action)) {
      listener.microbatch_done(action.stage,
                               last_of_.at(action.stage) == position);
    }
  }
  return result;
}

// Only a stage's last action gives gradients that stay as they are.
GradientFound Executor::found_in(size_t position,
                                 const Action& action,
                                 const GradientListener& listener) const {
  if (!listener.parameter_done || !makes_gradients(action.op) ||
      last_of_.at(action.stage) != position) {
    return {};
  }
  return [&listener, stage = action.stage](const at::Tensor& parameter) {
    listener.parameter_done(stage, parameter);
  };
}

bool Executor::completes_gradients(const Action& action) const {
  return action.op == Op::weight ||
         (action.op == Op::backward &&
          !weights_later_.contains({action.stage, action.microbatch}));
}

void Executor::begin(const Row& row) {
  training_ = false;
  weights_later_.clear();
  last_of_.clear();
  for (size_t position = 0; position < row.size(); ++position) {
    const Action& action = row[position];
    if (makes_gradients(action.op)) {
      training_ = true;
      last_of_[action.stage] = position;
    }
    if (action.op == Op::weight) {
      weights_later_.insert({action.stage, action.microbatch});
    }
  }
  for (const StagePart& part : parts_) {
    const bool split = std::ranges::any_of(
        weights_later_, [&](const Key& key) { return key.first == part.id; });
    part.stage->network().train(training_);
    part.stage->begin(split);
  }
}

void Executor::act(const Action& action, const Pass& pass, PassResult& result) {
  transport_.note({deed_of(action.op), action.stage, action.microbatch});
  const Seconds start = steady_now();
  if (is_compute(action.op)) {
    compute(action, pass, result);
    result.busy += steady_now() - start;
  } else {
    pass_message(action);
  }
  if (pass.traced) {
    result.spans.push_back({action, start, steady_now()});
  }
}

void Executor::pass_message(const Action& action) {
  const auto [op, m, stage] = action;
  const StageId next{stage.value + 1};
  const StageId previous{stage.value - 1};
  const Key key{stage, m};
  switch (op) {
    case Op::receive_forward:
      values_[key] =
          receive(rank_of(previous.value), {Channel::values, stage.value, m});
      break;
    case Op::send_forward:
      transport_.send(rank_of(next.value),
                      {Channel::values, next.value, m},
                      take(values_to_send_, key));
      break;
    case Op::receive_backward:
      gradients_[key] =
          receive(rank_of(next.value), {Channel::gradients, stage.value, m});
      break;
    default:
      transport_.send(rank_of(previous.value),
                      {Channel::gradients, previous.value, m},
                      take(gradients_to_send_, key));
      break;
  }
}

Values Executor::receive(Rank from, const Tag& tag) {
  Values values = transport_.receive(from, tag);
  for (const at::Tensor& value : values) {
    take_over(value);
  }
  return values;
}

void Executor::compute(const Action& action,
                       const Pass& pass,
                       PassResult& result) {
  const Key key{action.stage, action.microbatch};
  if (action.op == Op::forward) {
    forward(key, pass, result);
  } else if (action.op == Op::weight) {
    part(action.stage).stage->weights(action.microbatch, found_);
  } else {
    // A shared parameter's gradient was sent long before the gradients that
    // the stage has already received, so waiting for it costs no time.
    backward(key);
  }
}

void Executor::forward(const Key& key, const Pass& pass, PassResult& result) {
  const auto [stage, microbatch] = key;
  const Batch& batch = pass.microbatches.at(microbatch.value);
  const Values inputs =
      stage.value == 0 ? Values{batch.inputs} : take(values_, key);
  const Moment moment{pass.seed, pass.step, {pass.first + microbatch.value}};
  Stage& own = *part(stage).stage;
  if (!training_) {
    Values outputs = own.network().forward(inputs, moment);
    if (is_last(stage)) {
      judge(microbatch, outputs, pass, result);
    } else {
      hand_on(key, std::move(outputs));
    }
    return;
  }
  if (is_last(stage)) {
    const double weight = 1.0 / static_cast<double>(pass.count);
    own.forward(
        microbatch, inputs, moment, Goal{pass.loss, batch.targets, weight});
    result.loss_sum += own.loss(microbatch);
  } else {
    hand_on(key, own.forward(microbatch, inputs, moment, {}));
  }
}

void Executor::judge(Microbatch microbatch,
                     const Values& outputs,
                     const Pass& pass,
                     PassResult& result) {
  const at::Tensor& targets = pass.microbatches.at(microbatch.value).targets;
  result.loss_sum += pass.loss->sum(outputs.at(0), targets).item<double>();
  if (!targets.is_floating_point()) {
    result.correct +=
        outputs.at(0).argmax(-1).eq(targets).sum().item<std::int64_t>();
  }
}

void Executor::backward(const Key& key) {
  const auto [stage, microbatch] = key;
  StagePart& own = part(stage);
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
                          found_));
  for (const TieLink& tie : own.ties) {
    if (tie.earlier) {
      at::Tensor parameter = tie.parameter;
      transport_.send(rank_of(tie.earlier->value),
                      gradient_tag(tie, *tie.earlier, microbatch),
                      {parameter.grad()});
      parameter.mutable_grad() = at::Tensor();
    }
  }
  if (!weights_later_.contains(key)) {
    own.stage->weights(microbatch, found_);
  }
}

void Executor::hand_on(const Key& key, Values outputs) {
  const StageId next{key.first.value + 1};
  if (rank_of(next.value) == transport_.rank()) {
    values_[{next, key.second}] = std::move(outputs);
  } else {
    values_to_send_[key] = std::move(outputs);
  }
}

void Executor::hand_back(const Key& key, Values gradients) {
  const StageId previous{key.first.value - 1};
  if (previous.value < 0) {
    return;
  }
  if (rank_of(previous.value) == transport_.rank()) {
    gradients_[{previous, key.second}] = std::move(gradients);
  } else {
    gradients_to_send_[key] = std::move(gradients);
  }
}

StagePart& Executor::part(StageId stage) {
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
