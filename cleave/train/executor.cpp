#include "cleave/train/executor.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "cleave/error.h"
#include "cleave/train/busy_timer.h"

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

Values take(std::map<Microbatch, Values>& from, Microbatch microbatch) {
  return std::move(from.extract(microbatch).mapped());
}

}  // namespace

Executor::Executor(Stage& stage,
                   Transport& transport,
                   std::vector<TieLink> ties)
    : stage_(stage), transport_(transport), ties_(std::move(ties)) {}

PassResult Executor::run(const Pass& pass) {
  const Row& row = pass.schedule->rows.at(transport_.rank().value);
  training_ = std::any_of(row.begin(), row.end(), [](const Action& action) {
    return action.op == Op::backward;
  });
  const torch::AutoGradMode gradients(training_);
  stage_.network().train(training_);
  stage_.begin(/*split=*/false);
  PassResult result;
  for (const Action& action : row) {
    try {
      act(action, pass, result);
    } catch (const std::exception& error) {
      fail_in(action, error);
    }
  }
  return result;
}

void Executor::act(const Action& action, const Pass& pass, PassResult& result) {
  if (!is_compute(action.op)) {
    pass_message(action);
    return;
  }
  const BusyTimer timer(result.busy);
  if (action.op == Op::forward) {
    forward(action.microbatch, pass, result);
  } else if (action.op == Op::weight) {
    fail("a backward here always computes the weight gradients too",
         "Choose the schedule 1f1b or gpipe.");
  } else {
    // A shared parameter's gradient was sent long before the gradients that
    // the stage has already received, so waiting for it costs no time.
    backward(action.microbatch);
  }
}

void Executor::pass_message(const Action& action) {
  const Microbatch m = action.microbatch;
  const Tag values{Channel::values, 0, m};
  const Tag gradients{Channel::gradients, 0, m};
  switch (action.op) {
    case Op::receive_forward:
      received_values_[m] = transport_.receive(neighbour(-1), values);
      break;
    case Op::send_forward:
      transport_.send(neighbour(+1), values, take(values_to_send_, m));
      break;
    case Op::receive_backward:
      received_gradients_[m] = transport_.receive(neighbour(+1), gradients);
      break;
    default:
      transport_.send(neighbour(-1), gradients, take(gradients_to_send_, m));
      break;
  }
}

void Executor::forward(Microbatch microbatch,
                       const Pass& pass,
                       PassResult& result) {
  const Batch& batch = pass.microbatches.at(microbatch.value);
  const Values inputs =
      is_first() ? Values{batch.inputs} : take(received_values_, microbatch);
  const Moment moment{pass.seed, pass.step, microbatch};
  if (!training_) {
    Values outputs = stage_.network().forward(inputs, moment);
    if (is_last()) {
      judge(microbatch, outputs, pass, result);
    } else {
      values_to_send_[microbatch] = std::move(outputs);
    }
    return;
  }
  std::optional<Goal> goal;
  if (is_last()) {
    const double weight = 1.0 / static_cast<double>(pass.count);
    goal = {pass.loss, batch.targets, weight};
  }
  Values outputs = stage_.forward(microbatch, inputs, moment, goal);
  if (is_last()) {
    result.loss_sum += stage_.loss(microbatch);
  } else {
    values_to_send_[microbatch] = std::move(outputs);
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

void Executor::backward(Microbatch microbatch) {
  for (const TieLink& tie : ties_) {
    if (tie.later) {
      const Tag tag{Channel::tied_gradient, tie.index, microbatch};
      const at::Tensor gradient = transport_.receive(*tie.later, tag).at(0);
      if (gradient.defined()) {
        stage_.add_tied_gradient(tie.parameter, gradient);
      }
    }
  }
  const Values gradients =
      is_last() ? Values{} : take(received_gradients_, microbatch);
  Values entered = stage_.backward(microbatch, gradients);
  if (!is_first()) {
    gradients_to_send_[microbatch] = std::move(entered);
  }
  for (const TieLink& tie : ties_) {
    if (tie.earlier) {
      at::Tensor parameter = tie.parameter;
      const Tag tag{Channel::tied_gradient, tie.index, microbatch};
      transport_.send(*tie.earlier, tag, {parameter.grad()});
      parameter.mutable_grad() = at::Tensor();
    }
  }
}

}  // namespace cleave
