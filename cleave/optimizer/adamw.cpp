#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "cleave/optimizer/fused_call.h"
#include "cleave/optimizer/optimizer.h"

namespace cleave {
namespace {

struct AdamWEntry {
  at::Tensor parameter;
  at::Tensor mean;
  at::Tensor square;
  at::Tensor steps;
};

class AdamWOptimizer : public Optimizer {
 public:
  AdamWOptimizer(const AdamW& options, const std::vector<Parameter>& parameters)
      : options_(options) {
    for (const auto& parameter : parameters) {
      const AdamWEntry entry{parameter.value,
                             at::zeros_like(parameter.value),
                             at::zeros_like(parameter.value),
                             at::zeros({}, at::kFloat)};
      states_.emplace_back(parameter.name + "/exp_avg", entry.mean);
      states_.emplace_back(parameter.name + "/exp_avg_sq", entry.square);
      states_.emplace_back(parameter.name + "/step", entry.steps);
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
            const std::vector<AdamWEntry>& entries,
            double learning_rate) const {
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
                        call.weight_decay,
                        options_.epsilon,
                        /*amsgrad=*/false,
                        /*maximize=*/false);
    }
    mark_as_changed(parameters);
  }

  AdamW options_;
  std::map<FusedCall, std::vector<AdamWEntry>> calls_;
  NamedTensors states_;
};

}  // namespace

std::unique_ptr<Optimizer> AdamW::operator()(
    const std::vector<Parameter>& parameters) const {
  return std::make_unique<AdamWOptimizer>(*this, parameters);
}

}  // namespace cleave
