#include "cleave/train/executor.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <utility>

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

Seconds now() {
  using Clock = std::chrono::steady_clock;
  return {
      std::chrono::duration<double>(Clock::now().time_since_epoch()).count()};
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

PassResult Executor::run(const Pass& pass, const StageDone& done) {
  Run run{.pass = pass,
          .done = done,
          .row = pass.schedule->rows.at(transport_.rank().value)};
  begin(run.row);
  const torch::AutoGradMode gradients(training_);
  for (; run.position < run.row.size(); ++run.position) {
    if (!run.early.contains(run.position)) {
      act(run);
    }
  }
  return std::move(run.result);
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

void Executor::act(Run& run) {
  const Action& action = run.row[run.position];
  const Seconds start = now();
  try {
    if (is_compute(action.op)) {
      compute(action, run.pass, run.result);
    } else {
      pass_message(run, action);
    }
  } catch (const std::exception& error) {
    fail_in(action, error);
  }
  note(run, action, start);
  say_if_done(run, run.position);
}

// That the action, or a piece of it, ran from `start` to now.
void Executor::note(Run& run, const Action& action, Seconds start) {
  const Seconds end = now();
  if (is_compute(action.op)) {
    run.result.busy += end - start;
  }
  if (run.pass.traced) {
    run.result.spans.push_back({action, start, end});
  }
}

void Executor::say_if_done(const Run& run, size_t position) {
  const Action& action = run.row[position];
  if (run.done && makes_gradients(action.op) &&
      last_of_.at(action.stage) == position) {
    run.done(action.stage);
  }
}

void Executor::pass_message(Run& run, const Action& action) {
  const auto [op, m, stage] = action;
  const StageId next{stage.value + 1};
  const StageId previous{stage.value - 1};
  const Key key{stage, m};
  switch (op) {
    case Op::receive_forward:
      values_[key] = receive(
          run, rank_of(previous.value), {Channel::values, stage.value, m});
      break;
    case Op::send_forward:
      transport_.send(rank_of(next.value),
                      {Channel::values, next.value, m},
                      take(values_to_send_, key));
      break;
    case Op::receive_backward:
      gradients_[key] = receive(
          run, rank_of(next.value), {Channel::gradients, stage.value, m});
      break;
    default:
      transport_.send(rank_of(previous.value),
                      {Channel::gradients, previous.value, m},
                      take(gradients_to_send_, key));
      break;
  }
}

// Starts with a W only when the message is late by half of what a piece of it
// takes: a message that comes a moment later would else wait for the piece.
Values Executor::receive(Run& run, Rank from, const Tag& tag) {
  while (!transport_.wait_for(from, tag, 0.5 * piece_) && work_ahead(run)) {
  }
  return transport_.receive(from, tag);
}

// A piece of the next W. False: there is none that could be done now.
bool Executor::work_ahead(Run& run) {
  const std::optional<size_t> position = next_weights(run);
  if (!position) {
    return false;
  }
  const Action& action = run.row[*position];
  const Seconds start = now();
  bool is_more = false;
  try {
    is_more = part(action.stage).stage->weights_piece(action.microbatch);
  } catch (const std::exception& error) {
    fail_in(action, error);
  }
  piece_ = 0.9 * piece_ + 0.1 * (now() - start);
  note(run, action, start);
  if (!is_more) {
    run.early.insert(*position);
    say_if_done(run, *position);
  }
  return true;
}

// The first W ahead that may be done now: its B is done, and no gradient of its
// stage that is added up before it is still to come.
std::optional<size_t> Executor::next_weights(const Run& run) const {
  std::set<Key> to_come;
  std::set<StageId> closed;
  for (size_t ahead = run.position; ahead < run.row.size(); ++ahead) {
    const Action& action = run.row[ahead];
    const Key key{action.stage, action.microbatch};
    if (action.op == Op::backward) {
      to_come.insert(key);
      if (!weights_later_.contains(key)) {
        closed.insert(action.stage);
      }
    }
    if (action.op == Op::weight && !run.early.contains(ahead)) {
      if (!to_come.contains(key) && !closed.contains(action.stage)) {
        return ahead;
      }
      closed.insert(action.stage);
    }
  }
  return std::nullopt;
}

void Executor::compute(const Action& action,
                       const Pass& pass,
                       PassResult& result) {
  const Key key{action.stage, action.microbatch};
  if (action.op == Op::forward) {
    forward(key, pass, result);
  } else if (action.op == Op::weight) {
    part(action.stage).stage->weights(action.microbatch);
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
  const Moment moment{pass.seed, pass.step, microbatch};
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
  hand_back(key,
            own.stage->backward(
                microbatch, is_last(stage) ? Values{} : take(gradients_, key)));
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
    own.stage->weights(microbatch);
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
