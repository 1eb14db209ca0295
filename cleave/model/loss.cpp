#include "cleave/model/loss.h"

#include <ATen/ATen.h>

#include <string>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr std::int64_t kIgnored = -100;

at::Tensor cross_entropy_sum(const at::Tensor& result,
                             const at::Tensor& targets) {
  const std::int64_t classes = result.size(-1);
  return at::cross_entropy_loss(result.reshape({-1, classes}),
                                targets.reshape({-1}),
                                /*weight=*/{},
                                at::Reduction::Sum,
                                kIgnored);
}

std::int64_t counted_targets(const at::Tensor& targets) {
  return targets.ne(kIgnored).sum().item<std::int64_t>();
}

at::Tensor squared_error_sum(const at::Tensor& result,
                             const at::Tensor& targets) {
  if (result.sizes() != targets.sizes()) {
    fail("the result has another shape than the targets",
         "Let the last layer make as many numbers as the targets have.");
  }
  return at::mse_loss(result, targets, at::Reduction::Sum);
}

std::int64_t all_numbers(const at::Tensor& targets) {
  return targets.numel();
}

}  // namespace

const Loss cross_entropy{"cross_entropy", cross_entropy_sum, counted_targets};
const Loss mean_squared_error{"mse", squared_error_sum, all_numbers};

const Loss& loss_named(std::string_view name) {
  for (const Loss* loss : {&cross_entropy, &mean_squared_error}) {
    if (loss->name == name) {
      return *loss;
    }
  }
  fail("there is no loss called '" + std::string(name) + "'",
       "Known are cross_entropy and mse.");
}

}  // namespace cleave
