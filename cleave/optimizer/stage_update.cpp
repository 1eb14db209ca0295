#include "cleave/optimizer/stage_update.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

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

// Several replicas, each with everything.
class MirroredUpdate : public LocalUpdate {
 public:
  MirroredUpdate(const OptimizerKind& optimizer,
                 const Tensors& parameters,
                 const Mirrors& mirrors)
      : LocalUpdate(optimizer, parameters),
        sums_(mirrors, parameters, Sum::Wanted::all) {}

  void ready(const at::Tensor& parameter) override { sums_.ready(parameter); }
  void begin() override { sums_.begin(); }

  void finish(int /*microbatches*/) override {
    const Message sums = sums_.finish();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      at::Tensor& parameter = parameters()[i];
      if (sums[i].defined()) {
        const at::Tensor sum = sums[i].view(parameter.sizes());
        parameter.mutable_grad() =
            sum.strides() == parameter.strides()
                ? sum
                : at::empty_like(parameter.detach()).copy_(sum);
      }
    }
  }

 private:
  BucketSums sums_;
};

// Several replicas, each with the optimizer of its own section of every
// parameter. Gradients of other sections are dropped as soon as they are sent
// and added up.
class ShardedUpdate : public StageUpdate {
 public:
  ShardedUpdate(const OptimizerKind& optimizer,
                const Tensors& parameters,
                const Mirrors& mirrors)
      : parameters_(parameters),
        mirrors_(mirrors),
        sums_(mirrors, parameters, Sum::Wanted::own_section) {
    for (const at::Tensor& parameter : parameters_) {
      if (!parameter.is_contiguous()) {
        fail("parameters that do not lie in order cannot be sharded",
             "Set parallel.shard to none.");
      }
    }
    own_ = sections_of(mirrors_.ranks.rank());
    optimizer_ = make_optimizer(optimizer, own_);
  }

  void ready(const at::Tensor& parameter) override { sums_.ready(parameter); }
  void begin() override { sums_.begin(); }
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
    all_reduce(mirrors_.ranks, squares);
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
    Transport& ranks = mirrors_.ranks;
    const std::vector<Message> all =
        all_gather(ranks, own_, mirrors_.stage.value);
    for (Rank rank; rank.value < ranks.ranks(); ++rank.value) {
      const Tensors sections = sections_of(rank);
      for (std::size_t i = 0; i < sections.size(); ++i) {
        if (rank != ranks.rank()) {
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
    const Message sums = sums_.finish();
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
          section_of(parameter.numel(), rank, mirrors_.ranks.ranks());
      sections.push_back(
          parameter.detach().view({-1}).narrow(0, part.first, part.count));
    }
    return sections;
  }

  Tensors parameters_;
  Mirrors mirrors_;
  BucketSums sums_;
  Tensors own_;  // sections
  std::unique_ptr<Optimizer> optimizer_;
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

  void ready(const at::Tensor& /*parameter*/) override {}
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
                                               const Mirrors& mirrors,
                                               Shard shard) {
  if (mirrors.ranks.ranks() == 1) {
    return std::make_unique<LocalUpdate>(optimizer, parameters);
  }
  if (shard == Shard::none) {
    return std::make_unique<MirroredUpdate>(optimizer, parameters, mirrors);
  }
  if (shard == Shard::gradients) {
    return std::make_unique<ShardedGradients>(optimizer, parameters, mirrors);
  }
  return std::make_unique<ShardedUpdate>(optimizer, parameters, mirrors);
}

}  // namespace cleave
