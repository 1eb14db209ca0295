#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "cleave/units.h"

namespace cleave {

// Stochastic gradient descent with momentum.
struct Sgd {
  double momentum = 0.9;
  double weight_decay = 0;
  bool nesterov = false;
};

// Adam with decoupled weight decay.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

using OptimizerKind = std::variant<AdamW, Sgd>;

// Values kept per parameter between steps, for planning memory.
int state_copies(const OptimizerKind& kind);

// Updates some parameters by their gradients. Every update is elementwise, so
// it does not matter which parameters are updated together.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates in place. A parameter without a gradient is left alone.
  virtual void step(double learning_rate) = 0;

  // What it keeps between steps.
  virtual Bytes states() const = 0;
};

// Makes what updates these parameters by their gradients when it is called.
using MakeUpdate =
    std::function<std::function<void()>(const std::vector<at::Tensor>&)>;

// For a profile: how long such an optimizer takes.
MakeUpdate updates_by(const OptimizerKind& kind);

// The parameters must be CPU leaf tensors; they are shared, not copied.
std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerKind& kind, const std::vector<at::Tensor>& parameters);

}  // namespace cleave
