#pragma once

#include <optional>

#include "cleave/model/layer.h"

namespace cleave {

// Two layers that run as one operation, where they can: a linear one and the
// ReLU behind it. The same bits, in fewer passes over memory.
class FusedLayers {
 public:
  // None where these two do not go together.
  static std::optional<FusedLayers> of(const Layer& first, const Layer& second);

  // What the second makes of what the first makes of the input. Undefined where
  // they have to run one by one.
  at::Tensor forward(const at::Tensor& input) const;

 private:
  explicit FusedLayers(const Layer& linear);

  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace cleave
