#include "cleave/train/gradient_sync.h"

#include <torch/types.h>
#include <torch/utils.h>

namespace cleave {

GradientSync::GradientSync(Transport& mirrors,
                           std::vector<at::Tensor> parameters,
                           StageId stage)
    : mirrors_(mirrors), parameters_(std::move(parameters)), stage_(stage) {}

void GradientSync::begin() {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  std::vector<float> has;
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.grad();
    has.push_back(gradient.defined() ? 1 : 0);
    parts.push_back(gradient.defined()
                        ? gradient.reshape({-1})
                        : at::zeros({parameter.numel()}, parameter.options()));
  }
  parts.push_back(torch::tensor(has));
  flat_ = at::cat(parts);
  sum_.emplace(mirrors_, flat_, stage_.value);
  sum_->begin();
}

void GradientSync::finish() {
  const torch::NoGradGuard no_grad;
  sum_->finish();
  const auto count = std::ssize(parameters_);
  const at::Tensor has = flat_.narrow(0, flat_.numel() - count, count);
  std::int64_t start = 0;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    at::Tensor& parameter = parameters_[i];
    if (has[i].item<float>() > 0) {
      parameter.mutable_grad() = flat_.narrow(0, start, parameter.numel())
                                     .view_as(parameter)
                                     .to(parameter.scalar_type());
    }
    start += parameter.numel();
  }
  sum_.reset();
  flat_ = at::Tensor();
}

}  // namespace cleave
