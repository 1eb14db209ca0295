#pragma once

#include "cleave/model/layer.h"

namespace cleave {

// The parts side by side, along their last dimension. Their gradients are
// tensors of their own, not views of all: each is freed as soon as its part
// needs it no more.
at::Tensor joined(const Values& parts);

// A layer that does this, and nothing else.
Layer make_join();

}  // namespace cleave
