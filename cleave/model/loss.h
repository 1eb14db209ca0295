#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "cleave/model/layer.h"

namespace cleave {

// How wrong a network's result is. A batch's loss is the sum over all its
// microbatches divided by the count over all of them, so that microbatches of
// any size weigh exactly what their samples weigh.
struct Loss {
  std::string_view name;
  // A result that is moved in, and that nobody else holds, may be overwritten.
  at::Tensor (*sum)(at::Tensor result, const at::Tensor& targets);
  std::int64_t (*count)(const at::Tensor& targets);
  // The sum of a result in parts that lie side by side along its last
  // dimension; null: they have to be joined first.
  at::Tensor (*sum_of_parts)(Values parts, const at::Tensor& targets) = nullptr;
};

// The loss's sum of a result in one or more parts.
at::Tensor sum_of(const Loss& loss, Values parts, const at::Tensor& targets);

// Of class scores [n, classes] or [n, length, classes] against class numbers
// [n] or [n, length]. Targets of -100 do not count.
extern const Loss cross_entropy;

// Of numbers against numbers of the same shape.
extern const Loss mean_squared_error;

// The loss called `name`. Throws Error that lists the known ones.
const Loss& loss_named(std::string_view name);

}  // namespace cleave
