#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cleave/model/layer.h"
#include "cleave/units.h"

namespace cleave {

// A parameter as an optimizer sees it.
struct Parameter {
  std::string name;
  at::Tensor value;                 // a leaf; may be a section of the whole
  std::vector<std::int64_t> whole;  // sizes of the whole, unsplit tensor
};

// Parameters that are whole.
std::vector<Parameter> whole_parameters(const NamedTensors& tensors);

// Updates some parameters by their gradients. Every update is elementwise, so
// it does not matter which parameters are updated together, or in sections.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates in place, by the gradients in Parameter::value. A parameter without
  // a gradient is left alone.
  virtual void step(double learning_rate) = 0;

  // All it keeps between steps, by name: "hidden.weight/exp_avg". The names are
  // those of the parameters and never change; the tensors are its own.
  virtual NamedTensors get() const = 0;

  // Goes on where another one with these states stopped. Throws Error that
  // lists what is missing or unknown, and then changes nothing. As it is here,
  // copies into the tensors of get().
  virtual void set(const NamedTensors& states);

  // As it is here, of the tensors of get().
  virtual Bytes bytes() const;
};

// Makes the optimizer of these parameters, which it shares. Several threads may
// call it at the same time.
using MakeOptimizer =
    std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter>&)>;

// Values kept per parameter between steps, for planning memory: measured with
// small tensors, and rounded up. What is kept per tensor does not count.
int state_copies(const MakeOptimizer& make);

// Some parameters, and what is different for them. Of several groups that fit a
// parameter the first one counts.
struct ParameterGroup {
  std::string pattern = "*";  // of the name; * is any text, ? any character
  std::optional<int> most_dimensions = {};  // of the whole; none: any
  std::optional<double> weight_decay = {};  // none: that of the optimizer
  double rate = 1;                          // factor of the learning rate
};

bool fits(const ParameterGroup& group, const Parameter& parameter);

// Stochastic gradient descent with momentum. Keeps ".../momentum" of every
// parameter, zero before the first step; nothing where momentum is 0.
struct Sgd {
  double momentum = 0.9;
  double weight_decay = 0;
  bool nesterov = false;
  std::vector<ParameterGroup> groups = {};

  std::unique_ptr<Optimizer> operator()(
      const std::vector<Parameter>& parameters) const;
};

// Adam with decoupled weight decay. Keeps of every parameter ".../exp_avg",
// ".../exp_avg_sq", and in ".../step" how often it was updated.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  std::vector<ParameterGroup> groups = {};

  std::unique_ptr<Optimizer> operator()(
      const std::vector<Parameter>& parameters) const;
};

}  // namespace cleave
