#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cleave/model/layer.h"

namespace cleave {

// How wrong a network's result is. A batch's loss is the sum over all its
// microbatches divided by the count over all of them, so that microbatches of
// any size weigh exactly what their samples weigh. Several threads call the
// functions at the same time, so what they capture must not change.
struct Loss {
  std::string name;
  // A result that is moved in, and that nobody else holds, may be overwritten.
  std::function<at::Tensor(at::Tensor result, const at::Tensor& targets)> sum;
  std::function<std::int64_t(const at::Tensor& targets)> count;
  // The sum of a result in parts that lie side by side along its last
  // dimension; empty: they have to be joined first.
  std::function<at::Tensor(Values parts, const at::Tensor& targets)>
      sum_of_parts = {};
};

// The loss's sum of a result in one or more parts.
at::Tensor sum_of(const Loss& loss, Values parts, const at::Tensor& targets);

// Of class scores [n, classes] or [n, length, classes] against class numbers
// [n] or [n, length]. Targets of -100 do not count.
Loss cross_entropy();

// Of numbers against numbers of the same shape.
Loss mean_squared_error();

// The loss called `name`. Throws Error that lists the known ones.
Loss loss_named(std::string_view name);

}  // namespace cleave
