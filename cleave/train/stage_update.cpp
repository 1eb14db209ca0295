#include "cleave/train/stage_update.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <optional>

#include "cleave/comm/collectives.h"
#include "cleave/error.h"

namespace cleave {
namespace {

using Tensors = std::vector<at::Tensor>;

void drop_gradients(Tensors& parameters) {
  for (at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = at::Tensor();
  }
}

// One replica: what torch does on one device.
class LocalUpdate : public StageUpdate {
 public:
  LocalUpdate(const OptimizerKind& optimizer, Tensors parameters)
      : parameters_(std::move(parameters)),
        optimizer_(make_optimizer(optimizer, parameters_)) {}

  Tensors norms() override {
    Tensors found;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        found.push_back(parameter.grad().norm(2.0));
      }
    }
    return found;
  }

  void scale(const at::Tensor& factor) override {
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        at::Tensor(parameter.grad()).mul_(factor);
      }
    }
  }

  void step(double learning_rate) override {
    optimizer_->step(learning_rate);
    drop_gradients(parameters_);
  }

  Bytes states() const override { return optimizer_->states(); }

 protected:
  Tensors& parameters() { return parameters_; }

 private:
  Tensors parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

Message gradients_of(const Tensors& parameters) {
  Message gradients;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    gradients.push_back(gradient.defined() ? gradient.contiguous() : gradient);
  }
  return gradients;
}

// Several replicas, each with everything.
class MirroredUpdate : public LocalUpdate {
 public:
  MirroredUpdate(const OptimizerKind& optimizer,
                 const Tensors& parameters,
                 StageId stage,
                 Transport& mirrors)
      : LocalUpdate(optimizer, parameters), stage_(stage), mirrors_(mirrors) {}

  void begin() override {
    sum_.emplace(mirrors_, gradients_of(parameters()), stage_.value);
    sum_->begin();
  }

  void finish(int /*microbatches*/) override {
    const Message sums = sum_->finish();
    sum_.reset();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      at::Tensor& parameter = parameters()[i];
      if (sums[i].defined()) {
        parameter.mutable_grad() = sums[i].view(parameter.sizes());
      }
    }
  }

 private:
  StageId stage_;
  Transport& mirrors_;
  std::optional<Sum> sum_;
};

// Several replicas, each with the optimizer of its own section of every
// parameter. Gradients of other sections are dropped as soon as they are sent
// and added up.
class ShardedUpdate : public StageUpdate {
 public:
  ShardedUpdate(const OptimizerKind& optimizer,
                Tensors parameters,
                StageId stage,
                Transport& mirrors)
      : parameters_(std::move(parameters)), stage_(stage), mirrors_(mirrors) {
    for (const at::Tensor& parameter : parameters_) {
      if (!parameter.is_contiguous()) {
        fail("parameters that do not lie in order cannot be sharded",
             "Set parallel.shard to none.");
      }
    }
    own_ = sections_of(mirrors_.rank());
    optimizer_ = make_optimizer(optimizer, own_);
  }

  void begin() override {
    sum_.emplace(mirrors_, gradients_of(parameters_), stage_.value);
    drop_gradients(parameters_);
    sum_->begin();
  }

  void finish(int /*microbatches*/) override { scatter(); }

  // The squares of every replica's sections, added up in the order of replicas.
  Tensors norms() override {
    const torch::NoGradGuard no_grad;
    at::Tensor squares = at::zeros({1}, at::kDouble);
    for (const at::Tensor& section : own_) {
      if (section.grad().defined()) {
        squares += section.grad().to(at::kDouble).square().sum();
      }
    }
    all_reduce(mirrors_, squares);
    return {squares.sqrt().to(at::kFloat)[0]};
  }

  void scale(const at::Tensor& factor) override {
    for (const at::Tensor& section : own_) {
      if (section.grad().defined()) {
        at::Tensor(section.grad()).mul_(factor);
      }
    }
  }

  // Nobody writes to a section again before the next sums, and those need what
  // everybody sends after having read it.
  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    optimizer_->step(learning_rate);
    drop_gradients(own_);
    const std::vector<Message> all = all_gather(mirrors_, own_, stage_.value);
    for (Rank rank; rank.value < mirrors_.ranks(); ++rank.value) {
      const Tensors sections = sections_of(rank);
      for (std::size_t i = 0; i < sections.size(); ++i) {
        if (rank != mirrors_.rank()) {
          sections[i].copy_(all[rank.value][i]);
        }
      }
    }
    for (const at::Tensor& parameter : parameters_) {
      torch::autograd::impl::bump_version(parameter);
    }
  }

  Bytes states() const override { return optimizer_->states(); }

 protected:
  // Adds what was begun to the gradients of the own sections.
  void scatter() {
    const torch::NoGradGuard no_grad;
    const Message sums = sum_->scatter();
    sum_.reset();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (own_[i].grad().defined() && sums[i].defined()) {
        at::Tensor(own_[i].grad()).add_(sums[i]);
      } else if (sums[i].defined()) {
        own_[i].mutable_grad() = sums[i];
      }
    }
  }

 private:
  // Of every parameter, as views.
  Tensors sections_of(Rank rank) const {
    Tensors sections;
    for (const at::Tensor& parameter : parameters_) {
      const Section part =
          section_of(parameter.numel(), rank, mirrors_.ranks());
      sections.push_back(
          parameter.detach().view({-1}).narrow(0, part.first, part.count));
    }
    return sections;
  }

  Tensors parameters_;
  StageId stage_;
  Transport& mirrors_;
  Tensors own_;  // sections
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<Sum> sum_;
};

// The same, microbatch by microbatch: no replica keeps more of the gradients
// than its sections. A replica with fewer microbatches than others adds nothing
// to the last sums.
class ShardedGradients : public ShardedUpdate {
 public:
  using ShardedUpdate::ShardedUpdate;

  void add() override {
    ShardedUpdate::begin();
    scatter();
    ++added_;
  }

  void begin() override {}

  void finish(int microbatches) override {
    while (added_ < microbatches) {
      add();
    }
    added_ = 0;
  }

 private:
  int added_ = 0;
};

}  // namespace

std::unique_ptr<StageUpdate> make_stage_update(const OptimizerKind& optimizer,
                                               const Tensors& parameters,
                                               StageId stage,
                                               Transport& mirrors,
                                               Shard shard) {
  if (mirrors.ranks() == 1) {
    return std::make_unique<LocalUpdate>(optimizer, parameters);
  }
  if (shard == Shard::none) {
    return std::make_unique<MirroredUpdate>(
        optimizer, parameters, stage, mirrors);
  }
  if (shard == Shard::gradients) {
    return std::make_unique<ShardedGradients>(
        optimizer, parameters, stage, mirrors);
  }
  return std::make_unique<ShardedUpdate>(optimizer, parameters, stage, mirrors);
}

}  // namespace cleave
