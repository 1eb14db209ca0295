// What an executor does from a stage's gradients to its new weights.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "cleave/comm/collectives.h"
#include "cleave/device/clock.h"
#include "cleave/train/executor.h"

namespace cleave {

void Executor::reduce(const Row& row, std::size_t position) {
  begin_sum(row[position]);
}

void Executor::begin_sum(const Action& action) {
  const std::pair sum(action.stage, action.index);
  {
    const std::lock_guard lock(mutex_);
    sums_.try_emplace(sum, steady_now());
  }
  own(action.stage).update->begin_sum(action.index);
}

// A sum ends when its result is taken.
void Executor::finish_sums(OwnStage& stage) {
  if (!synchronisation().mirrored()) {
    return;
  }
  stage.update->finish_sums();
  const Seconds end = steady_now();
  const std::lock_guard lock(mutex_);
  std::erase_if(sums_, [&](const auto& sum) {
    const auto& [of, index] = sum.first;
    if (of != stage.id) {
      return false;
    }
    record({Op::reduce, of, index, {}}, sum.second, end, pipeline_.rank());
    return true;
  });
}

void Executor::reduce_norm(const Row& row, std::size_t position) {
  const StageId stage = row[position].stage;
  at::Tensor norms = norms_of(stage);
  own(stage).update->reduce_norms(norms);
  const std::lock_guard lock(mutex_);
  norms_[stage] = std::move(norms);
}

void Executor::norm(const Row& row, std::size_t position) {
  const Action& action = row[position];
  const torch::NoGradGuard no_grad;
  OwnStage& stage = own(action.stage);
  finish_sums(stage);
  at::Tensor norms = stage.update->norms();
  const std::lock_guard lock(mutex_);
  norms_[action.stage] = std::move(norms);
}

at::Tensor Executor::norms_of(StageId stage) {
  const std::lock_guard lock(mutex_);
  return norms_.at(stage);
}

void Executor::send_norms(const Row& row, std::size_t position) {
  const StageId stage = row[position].stage;
  const at::Tensor norms = norms_of(stage);
  const std::set<Rank> ranks(placement_.begin(), placement_.end());
  for (const Rank rank : ranks) {  // one without a stage takes none
    if (rank != pipeline_.rank()) {
      pipeline_.send(rank, {Channel::norms, stage.value, {}}, {norms});
    }
  }
}

void Executor::receive_norms(const Row& row, std::size_t position) {
  for (const auto& [from, tag] : sources_of(row[position])) {
    const Message norms = pipeline_.receive(from, tag);
    const std::lock_guard lock(mutex_);
    norms_[StageId{tag.index}] = norms.at(0);
  }
}

// The same arithmetic as torch::nn::utils::clip_grad_norm_ on the unsplit
// network: one norm per parameter, in the order of the layers, and the norm of
// those. So the cut does not change a bit of it.
at::Tensor Executor::clip_factor() {
  const std::lock_guard lock(mutex_);
  if (!clip_factor_) {
    std::vector<at::Tensor> norms;
    for (const auto& [stage, of_stage] : norms_) {
      norms.push_back(of_stage);
    }
    const at::Tensor all = at::cat(norms);
    const at::Tensor norm = all.numel() == 1 ? all[0] : all.norm(2.0);
    clip_factor_ = (pass_->clip / (norm + 1e-6)).clamp(std::nullopt, 1.0);
    result_.gradient_norm = norm.item<double>();
  }
  return *clip_factor_;
}

void Executor::update(const Row& row, std::size_t position) {
  const torch::NoGradGuard no_grad;
  OwnStage& stage = own(row[position].stage);
  if (synchronisation().clips) {
    stage.update->scale(clip_factor());
  } else {
    finish_sums(stage);
  }
  stage.update->update(pass_->learning_rate);
  if (synchronisation().shard_states == ShardStates::none) {
    stage.stage.network().renew_copies();
  }
}

void Executor::gather_weights(const Row& row, std::size_t position) {
  OwnStage& stage = own(row[position].stage);
  stage.update->gather_weights();
  stage.stage.network().renew_copies();
}

// What layers keep beside their weights (the averages of a batch norm) comes
// from other data on every replica; the first one's counts.
void Executor::share_buffers(const Row& row, std::size_t position) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  for (const auto& [name, tensor] :
       own(row[position].stage).stage.network().state()) {
    if (!tensor.requires_grad()) {
      buffers.push_back(tensor);
    }
  }
  // Copies: the first replica may go on while others still read.
  std::vector<at::Tensor> copies;
  copies.reserve(buffers.size());
  for (const at::Tensor& buffer : buffers) {
    copies.push_back(buffer.clone());
  }
  const Message first = broadcast(mirrors_, copies, Rank{0});
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i].copy_(first[i]);
  }
}

}  // namespace cleave
