#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "cleave/optimizer/fused_call.h"
#include "cleave/optimizer/optimizer.h"

namespace cleave {
namespace {

struct SgdEntry {
  at::Tensor parameter;
  at::Tensor momentum;  // undefined: without
};

class SgdOptimizer : public Optimizer {
 public:
  SgdOptimizer(const Sgd& options, const std::vector<Parameter>& parameters)
      : options_(options) {
    for (const auto& parameter : parameters) {
      SgdEntry entry{parameter.value, {}};
      if (options.momentum != 0) {
        entry.momentum = at::zeros_like(parameter.value);
        states_.emplace_back(parameter.name + "/momentum", entry.momentum);
      }
      calls_[fused_call_for(parameter, options.groups, options.weight_decay)]
          .push_back(entry);
    }
  }

  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (const auto& [call, entries] : calls_) {
      step(call, entries, call.rate * learning_rate);
    }
  }

  NamedTensors get() const override { return states_; }

 private:
  void step(const FusedCall& call,
            const std::vector<SgdEntry>& entries,
            double learning_rate) const {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> momenta;
    for (const SgdEntry& entry : entries) {
      if (entry.parameter.grad().defined()) {
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
                      call.weight_decay,
                      options_.momentum,
                      learning_rate,
                      /*dampening=*/0,
                      options_.nesterov,
                      /*maximize=*/false,
                      /*is_first_step=*/false);
    }
    mark_as_changed(parameters);
  }

  Sgd options_;
  std::map<FusedCall, std::vector<SgdEntry>> calls_;
  NamedTensors states_;
};

}  // namespace

std::unique_ptr<Optimizer> Sgd::operator()(
    const std::vector<Parameter>& parameters) const {
  return std::make_unique<SgdOptimizer>(*this, parameters);
}

}  // namespace cleave
