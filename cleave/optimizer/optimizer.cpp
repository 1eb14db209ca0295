#include "cleave/optimizer/optimizer.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>

namespace cleave {
namespace {

// libtorch's fused kernels take all tensors of one type in one call.
template <class Entry>
using ByType = std::map<at::ScalarType, std::vector<Entry>>;

// libtorch's in-place operations raise a tensor's version; its fused ones
// do not.
void mark_as_changed(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    torch::autograd::impl::bump_version(parameter);
  }
}

Bytes bytes_of(const at::Tensor& tensor) {
  return {tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0};
}

struct AdamWEntry {
  at::Tensor parameter;
  at::Tensor mean;
  at::Tensor square;
  at::Tensor steps;
};

class AdamWOptimizer : public Optimizer {
 public:
  AdamWOptimizer(const AdamW& options,
                 const std::vector<at::Tensor>& parameters)
      : options_(options) {
    for (const at::Tensor& parameter : parameters) {
      entries_[parameter.scalar_type()].push_back({parameter,
                                                   at::zeros_like(parameter),
                                                   at::zeros_like(parameter),
                                                   at::zeros({}, at::kFloat)});
    }
  }

  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (const auto& [type, entries] : entries_) {
      step(entries, learning_rate);
    }
  }

  Bytes states() const override {
    Bytes all;
    for (const auto& [type, entries] : entries_) {
      for (const AdamWEntry& entry : entries) {
        all += bytes_of(entry.mean) + bytes_of(entry.square);
      }
    }
    return all;
  }

 private:
  void step(const std::vector<AdamWEntry>& entries, double learning_rate) {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> means;
    std::vector<at::Tensor> squares;
    std::vector<at::Tensor> steps;
    for (const AdamWEntry& entry : entries) {
      if (entry.parameter.grad().defined()) {
        *entry.steps.mutable_data_ptr<float>() += 1;
        parameters.push_back(entry.parameter);
        gradients.push_back(entry.parameter.grad());
        means.push_back(entry.mean);
        squares.push_back(entry.square);
        steps.push_back(entry.steps);
      }
    }
    if (!parameters.empty()) {
      at::_fused_adamw_(parameters,
                        gradients,
                        means,
                        squares,
                        /*max_exp_avg_sqs=*/{},
                        steps,
                        learning_rate,
                        options_.beta1,
                        options_.beta2,
                        options_.weight_decay,
                        options_.epsilon,
                        /*amsgrad=*/false,
                        /*maximize=*/false);
    }
    mark_as_changed(parameters);
  }

  AdamW options_;
  ByType<AdamWEntry> entries_;
};

struct SgdEntry {
  at::Tensor parameter;
  at::Tensor momentum;
  bool started = false;  // the first step sets the momentum, it adds nothing
};

class SgdOptimizer : public Optimizer {
 public:
  SgdOptimizer(const Sgd& options, const std::vector<at::Tensor>& parameters)
      : options_(options) {
    for (const at::Tensor& parameter : parameters) {
      entries_[parameter.scalar_type()].push_back(
          {parameter,
           options.momentum != 0 ? at::empty_like(parameter) : at::Tensor()});
    }
  }

  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (auto& [type, entries] : entries_) {
      step(entries, /*first=*/true, learning_rate);
      step(entries, /*first=*/false, learning_rate);
      for (SgdEntry& entry : entries) {
        entry.started = entry.started || entry.parameter.grad().defined();
      }
    }
  }

  Bytes states() const override {
    Bytes all;
    for (const auto& [type, entries] : entries_) {
      for (const SgdEntry& entry : entries) {
        all += bytes_of(entry.momentum);
      }
    }
    return all;
  }

 private:
  // Updates the parameters whose first step this is, or all the others.
  void step(const std::vector<SgdEntry>& entries,
            bool first,
            double learning_rate) {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> momenta;
    for (const SgdEntry& entry : entries) {
      if (entry.parameter.grad().defined() && entry.started != first) {
        parameters.push_back(entry.parameter);
        gradients.push_back(entry.parameter.grad());
        if (entry.momentum.defined()) {
          momenta.push_back(entry.momentum);
        }
      }
    }
    if (!parameters.empty()) {
      at::_fused_sgd_(parameters,
                      gradients,
                      momenta,
                      options_.weight_decay,
                      options_.momentum,
                      learning_rate,
                      /*dampening=*/0,
                      options_.nesterov,
                      /*maximize=*/false,
                      /*is_first_step=*/first);
    }
    mark_as_changed(parameters);
  }

  Sgd options_;
  ByType<SgdEntry> entries_;
};

}  // namespace

int state_copies(const OptimizerKind& kind) {
  if (const Sgd* sgd = std::get_if<Sgd>(&kind)) {
    return sgd->momentum != 0 ? 1 : 0;
  }
  return 2;
}

MakeUpdate updates_by(const OptimizerKind& kind) {
  return [kind](const std::vector<at::Tensor>& parameters) {
    const std::shared_ptr<Optimizer> optimizer =
        make_optimizer(kind, parameters);
    return [optimizer] { optimizer->step(1e-6); };
  };
}

std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerKind& kind, const std::vector<at::Tensor>& parameters) {
  if (const Sgd* sgd = std::get_if<Sgd>(&kind)) {
    return std::make_unique<SgdOptimizer>(*sgd, parameters);
  }
  return std::make_unique<AdamWOptimizer>(std::get<AdamW>(kind), parameters);
}

}  // namespace cleave
