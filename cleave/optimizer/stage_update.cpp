#include "cleave/optimizer/stage_update.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>

#include "cleave/error.h"

namespace cleave {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors values_of(const std::vector<Parameter>& parameters) {
  Tensors values;
  for (const auto& parameter : parameters) {
    values.push_back(parameter.value);
  }
  return values;
}

void drop_gradients(Tensors& parameters) {
  for (at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = at::Tensor();
  }
}

// One replica: what torch does on one device.
class LocalUpdate : public StageUpdate {
 public:
  LocalUpdate(const MakeOptimizer& make,
              const std::vector<Parameter>& parameters)
      : parameters_(values_of(parameters)), optimizer_(make(parameters)) {}

  at::Tensor norms() override {
    Tensors found;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        found.push_back(parameter.grad().norm(2.0));
      }
    }
    return found.empty() ? at::empty({0}, at::kFloat) : at::stack(found);
  }

  void scale(const at::Tensor& factor) override {
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) {
        at::Tensor(parameter.grad()).mul_(factor);
      }
    }
  }

  void update(double learning_rate) override {
    optimizer_->step(learning_rate);
    drop_gradients(parameters_);
  }

  Bytes states() const override { return optimizer_->bytes(); }

 protected:
  Tensors& parameters() { return parameters_; }

 private:
  Tensors parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

// Several replicas, each with everything.
class MirroredUpdate : public LocalUpdate {
 public:
  MirroredUpdate(const MakeOptimizer& make,
                 const std::vector<Parameter>& parameters,
                 const Mirrors& mirrors,
                 const std::vector<Bucket>& buckets)
      : LocalUpdate(make, parameters),
        sums_(mirrors, values_of(parameters), buckets, Sum::Wanted::all) {}

  std::optional<int> note(const at::Tensor& parameter) override {
    return sums_.note(parameter);
  }
  void begin_sum(int index) override { sums_.begin(index); }

  void finish_sums() override {
    const torch::NoGradGuard no_grad;
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
  GradientSums sums_;
};

// Several replicas, each with the optimizer of its own section of every
// parameter. Gradients of other sections are dropped as soon as they are sent
// and added up.
class ShardedUpdate : public StageUpdate {
 public:
  ShardedUpdate(const MakeOptimizer& make,
                const std::vector<Parameter>& parameters,
                const Mirrors& mirrors,
                const std::vector<Bucket>& buckets)
      : parameters_(values_of(parameters)),
        mirrors_(mirrors),
        sums_(mirrors, parameters_, buckets, Sum::Wanted::own_section) {
    for (const at::Tensor& parameter : parameters_) {
      if (!parameter.is_contiguous()) {
        fail("parameters that do not lie in order cannot be sharded",
             "Set parallel.shard_states to none.");
      }
    }
    own_ = sections_of(mirrors_.ranks.rank());
    std::vector<Parameter> sections = parameters;
    for (std::size_t i = 0; i < sections.size(); ++i) {
      sections[i].value = own_[i];
    }
    optimizer_ = make(sections);
  }

  std::optional<int> note(const at::Tensor& parameter) override {
    return sums_.note(parameter);
  }
  void begin_sum(int index) override { sums_.begin(index); }
  void finish_sums() override { scatter(); }

  // The sum of squares of the own sections: M adds these up and takes the root.
  at::Tensor norms() override {
    const torch::NoGradGuard no_grad;
    at::Tensor squares = at::zeros({1}, at::kDouble);
    for (const at::Tensor& section : own_) {
      if (section.grad().defined()) {
        squares += section.grad().to(at::kDouble).square().sum();
      }
    }
    return squares;
  }

  void reduce_norms(at::Tensor& norms) override {
    const torch::NoGradGuard no_grad;
    all_reduce(mirrors_.ranks, norms);
    norms = norms.sqrt().to(at::kFloat);
  }

  void scale(const at::Tensor& factor) override {
    for (const at::Tensor& section : own_) {
      if (section.grad().defined()) {
        at::Tensor(section.grad()).mul_(factor);
      }
    }
  }

  void update(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    optimizer_->step(learning_rate);
    drop_gradients(own_);
  }

  // A section is written to again only after the next sums, and these need
  // messages that every replica sends after having read it.
  void gather_weights() override {
    const torch::NoGradGuard no_grad;
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

  Bytes states() const override { return optimizer_->bytes(); }

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
  GradientSums sums_;
  Tensors own_;  // sections
  std::unique_ptr<Optimizer> optimizer_;
};

// The same, microbatch by microbatch: no replica keeps more of the gradients
// than its sections. All gradients are one bucket.
class ShardedGradients : public ShardedUpdate {
 public:
  using ShardedUpdate::ShardedUpdate;

  std::optional<int> note(const at::Tensor& /*parameter*/) override {
    return std::nullopt;
  }

  void begin_sum(int /*index*/) override {
    ShardedUpdate::begin_sum(0);
    scatter();
  }

  void finish_sums() override {}
};

// Whether the parameter is one of the layer's.
bool is_of(const Parameter& parameter, const std::string& layer) {
  return parameter.name.starts_with(layer + ".");
}

std::vector<Bucket> buckets_of(
    const std::vector<Parameter>& parameters,
    const std::vector<std::vector<std::string>>& layers) {
  std::vector<Bucket> buckets(layers.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto bucket = std::ranges::find_if(layers, [&](const auto& some) {
      return std::ranges::any_of(some, [&](const std::string& layer) {
        return is_of(parameters[i], layer);
      });
    });
    if (bucket == layers.end()) {
      fail("the plan has no bucket for the gradient of '" + parameters[i].name +
               "'",
           "Name its layer in a bucket of its stage, or plan again.");
    }
    buckets[bucket - layers.begin()].push_back(i);
  }
  return buckets;
}

Bucket all_of(const std::vector<Parameter>& parameters) {
  Bucket all(parameters.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

std::unique_ptr<StageUpdate> make_stage_update(
    const MakeOptimizer& make,
    const std::vector<Parameter>& parameters,
    const Mirrors& mirrors,
    const std::vector<std::vector<std::string>>& buckets,
    ShardStates shard_states) {
  if (mirrors.ranks.ranks() == 1) {
    return std::make_unique<LocalUpdate>(make, parameters);
  }
  if (shard_states == ShardStates::gradients) {
    return std::make_unique<ShardedGradients>(
        make, parameters, mirrors, std::vector<Bucket>{all_of(parameters)});
  }
  const std::vector<Bucket> own = buckets_of(parameters, buckets);
  if (shard_states == ShardStates::none) {
    return std::make_unique<MirroredUpdate>(make, parameters, mirrors, own);
  }
  return std::make_unique<ShardedUpdate>(make, parameters, mirrors, own);
}

}  // namespace cleave
