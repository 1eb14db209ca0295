#include "cleave/model/loss.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "cleave/error.h"
#include "cleave/model/cross_entropy.h"

namespace cleave {
namespace {

at::Tensor token_cross_entropy(at::Tensor result, const at::Tensor& targets) {
  if (result.dim() == 2) {
    return cross_entropy_sum(std::move(result), targets);
  }
  // A view that takes the tensor's place, so that nobody else holds it.
  at::Tensor rows = result.reshape({-1, result.size(-1)});
  result = at::Tensor();
  return cross_entropy_sum(std::move(rows), targets.reshape({-1}));
}

std::int64_t counted_targets(const at::Tensor& targets) {
  return targets.ne(kIgnoredTarget).sum().item<std::int64_t>();
}

// NOLINTNEXTLINE: by value, as every loss.
at::Tensor squared_error_sum(at::Tensor result, const at::Tensor& targets) {
  if (result.sizes() != targets.sizes()) {
    fail("the result has another shape than the targets",
         "Let the last layer make as many numbers as the targets have.");
  }
  return at::mse_loss(
      result.to(targets.scalar_type()), targets, at::Reduction::Sum);
}

std::int64_t all_numbers(const at::Tensor& targets) {
  return targets.numel();
}

}  // namespace

const Loss cross_entropy{"cross_entropy", token_cross_entropy, counted_targets};
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
