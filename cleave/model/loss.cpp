#include "cleave/model/loss.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "cleave/error.h"
#include "cleave/model/join.h"
#include "cleave/model/kernels/cross_entropy.h"

namespace cleave {
namespace {

at::Tensor whole_cross_entropy(at::Tensor result, const at::Tensor& targets) {
  Values parts;
  parts.push_back(std::move(result));
  return cross_entropy_sum(std::move(parts), targets);
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

Loss cross_entropy() {
  return {
      "cross_entropy", whole_cross_entropy, counted_targets, cross_entropy_sum};
}

Loss mean_squared_error() {
  return {"mse", squared_error_sum, all_numbers};
}

at::Tensor sum_of(const Loss& loss, Values parts, const at::Tensor& targets) {
  if (parts.size() == 1) {
    return loss.sum(std::move(parts[0]), targets);
  }
  if (!loss.sum_of_parts) {
    return loss.sum(joined(parts), targets);
  }
  return loss.sum_of_parts(std::move(parts), targets);
}

Loss loss_named(std::string_view name) {
  for (const Loss& loss : {cross_entropy(), mean_squared_error()}) {
    if (loss.name == name) {
      return loss;
    }
  }
  fail("there is no loss called '" + std::string(name) + "'",
       "Known are cross_entropy and mse.");
}

}  // namespace cleave
