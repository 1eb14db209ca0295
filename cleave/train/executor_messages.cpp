// What an executor sends to other ranks of its pipeline, and takes from them.
#include <torch/types.h>
#include <torch/utils.h>

#include <utility>

#include "cleave/error.h"
#include "cleave/train/executor.h"

namespace cleave {

// Where what an action receives comes from, and as what.
std::vector<std::pair<Rank, Tag>> Executor::sources_of(
    const Action& action) const {
  const auto& [op, stage, index, step] = action;
  std::vector<std::pair<Rank, Tag>> sources;
  const auto add = [&](StageId from, const Tag& tag) {
    sources.emplace_back(rank_of(from), tag);
  };
  if (op == Op::receive_values) {
    for (const StageId source : order().crossing_sources(stage)) {
      add(source, {Channel::values, stage.value, Microbatch{index}});
    }
  } else if (op == Op::receive_gradients) {
    for (const StageId reader : order().crossing_readers(stage)) {
      add(reader, {Channel::gradients, stage.value, Microbatch{index}});
    }
  } else if (op == Op::receive_norms) {
    for (StageId other; other.value < std::ssize(placement_); ++other.value) {
      if (rank_of(other) != pipeline_.rank()) {
        add(other, {Channel::norms, other.value, {}});
      }
    }
  } else {
    return tie_sources_of(action);
  }
  return sources;
}

std::vector<std::pair<Rank, Tag>> Executor::tie_sources_of(
    const Action& action) const {
  const auto& [op, stage, index, step] = action;
  std::vector<std::pair<Rank, Tag>> sources;
  for (const TieLink& tie : own(stage).ties) {
    if (op == Op::receive_tied_gradients && tie.later) {
      sources.emplace_back(rank_of(*tie.later),
                           tie_tag(Channel::tied_gradient, tie, stage, index));
    }
    if (op == Op::receive_tied_weights && tie.earlier) {
      sources.emplace_back(rank_of(*tie.earlier),
                           tie_tag(Channel::tied_weight, tie, stage));
    }
  }
  return sources;
}

bool Executor::has_arrived(const Action& receive) const {
  for (const auto& [from, tag] : sources_of(receive)) {
    if (!pipeline_.has(from, tag)) {
      return false;
    }
  }
  return true;
}

void Executor::fail_late(const Action& receive, Seconds patience) const {
  for (const auto& [from, tag] : sources_of(receive)) {
    if (!pipeline_.has(from, tag)) {
      try {
        fail_timed_out(name_of(pipeline_.rank()), name_of(from), tag, patience);
      } catch (const Error& error) {
        fail_in(receive, own(receive.stage).stage, error);
      }
    }
  }
  fail(name_of(pipeline_.rank()) + " waited " + to_text(patience) +
           " for another rank's work",
       "See what the other devices are doing; give them longer with "
       "devices.patience.");
}

// Values that several sources make are joined in the order of the stages.
Values Executor::receive(const Action& action) {
  Values all;
  for (const auto& [from, tag] : sources_of(action)) {
    for (at::Tensor& value : pipeline_.receive(from, tag)) {
      all.push_back(received(std::move(value)));
    }
  }
  return all;
}

void Executor::receive_values(const Row& row, std::size_t position) {
  const Action& action = row[position];
  hold(values_, {action.stage, action.index}, receive(action));
}

void Executor::receive_gradients(const Row& row, std::size_t position) {
  const Action& action = row[position];
  hold(gradients_, {action.stage, action.index}, receive(action));
}

void Executor::send_values(const Row& row, std::size_t position) {
  const auto& [op, stage, microbatch, step] = row[position];
  Values values = take(values_to_send_, {stage, microbatch});
  const std::vector<StageId> readers = order().crossing_readers(stage);
  for (const StageId reader : readers) {
    pipeline_.send(rank_of(reader),
                   {Channel::values, reader.value, Microbatch{microbatch}},
                   given_to(reader, readers, values));
  }
}

void Executor::send_gradients(const Row& row, std::size_t position) {
  const auto& [op, stage, microbatch, step] = row[position];
  Values gradients = take(gradients_to_send_, {stage, microbatch});
  const std::vector<StageId> sources = order().crossing_sources(stage);
  for (const StageId source : sources) {
    pipeline_.send(rank_of(source),
                   {Channel::gradients, source.value, Microbatch{microbatch}},
                   given_to(source, sources, gradients));
  }
}

void Executor::receive_tied_gradients(const Row& row, std::size_t position) {
  const Action& action = row[position];
  Values gradients;
  for (const auto& [from, tag] : sources_of(action)) {
    gradients.push_back(pipeline_.receive(from, tag).at(0));
  }
  hold(tied_gradients_, {action.stage, action.index}, gradients);
}

// What later stages found for weights that this one shares is added first.
void Executor::take_tied_gradients(const Key& key) {
  OwnStage& stage = own(key.first);
  Values gradients;
  {
    const std::lock_guard lock(mutex_);
    const auto held = tied_gradients_.extract(key);
    if (!held) {
      return;
    }
    gradients = held.mapped();
  }
  auto next = gradients.begin();
  for (const TieLink& tie : stage.ties) {
    if (tie.later) {
      if (next->defined()) {
        stage.stage.add_tied_gradient(tie.parameter, *next);
      }
      ++next;
    }
  }
}

void Executor::send_tied_gradients(const Row& row, std::size_t position) {
  const Key key{row[position].stage, row[position].index};
  OwnStage& stage = own(key.first);
  Values gradients;
  {
    const std::lock_guard lock(mutex_);
    const auto held = tied_gradients_to_send_.extract(key);
    if (!held) {
      return;  // the shared weights are frozen
    }
    gradients = held.mapped();
  }
  auto next = gradients.begin();
  for (const TieLink& tie : stage.ties) {
    if (tie.earlier) {
      pipeline_.send(
          rank_of(*tie.earlier),
          tie_tag(Channel::tied_gradient, tie, *tie.earlier, key.second),
          {std::move(*next++)});
    }
  }
}

// The owner writes to a shared weight again only after the next step's
// gradients, which come after the others have read it.
void Executor::receive_tied_weights(const Row& row, std::size_t position) {
  const StageId stage = row[position].stage;
  const torch::NoGradGuard no_grad;
  for (const TieLink& tie : own(stage).ties) {
    if (tie.earlier) {
      at::Tensor parameter = tie.parameter;
      parameter.copy_(pipeline_
                          .receive(rank_of(*tie.earlier),
                                   tie_tag(Channel::tied_weight, tie, stage))
                          .at(0));
    }
  }
}

void Executor::send_tied_weights(const Row& row, std::size_t position) {
  for (const TieLink& tie : own(row[position].stage).ties) {
    if (tie.later) {
      pipeline_.send(rank_of(*tie.later),
                     tie_tag(Channel::tied_weight, tie, *tie.later),
                     {tie.parameter.detach()});
    }
  }
}

Tag Executor::tie_tag(Channel channel,
                      const TieLink& tie,
                      StageId receiver,
                      int microbatch) const {
  const int stages = static_cast<int>(placement_.size());
  return {channel, tie.index * stages + receiver.value, Microbatch{microbatch}};
}

}  // namespace cleave
