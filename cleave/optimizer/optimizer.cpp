#include "cleave/optimizer/optimizer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "cleave/error.h"

namespace cleave {
namespace {

// Bytes kept between steps for one parameter of so many rows.
std::int64_t bytes_kept(const MakeOptimizer& make, at::Tensor value) {
  value.mutable_grad() = at::ones_like(value);
  const std::unique_ptr<Optimizer> optimizer =
      make({{"parameter", value, value.sizes().vec()}});
  optimizer->step(0);  // some make their states in the first step
  return optimizer->bytes().value;
}

bool are_alike(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() &&
         one.scalar_type() == other.scalar_type();
}

std::string listed(const std::string& what, const std::string& names) {
  return names.empty() ? "" : "; " + what + names;
}

// Throws Error unless both have the same names, shapes and types.
void check_states(const NamedTensors& own,
                  std::map<std::string, at::Tensor> given) {
  std::string missing;
  std::string different;
  std::string unknown;
  for (const auto& [name, tensor] : own) {
    const auto found = given.extract(name);
    if (found.empty()) {
      missing += " " + name;
    } else if (!are_alike(found.mapped(), tensor)) {
      different += " " + name;
    }
  }
  for (const auto& [name, tensor] : given) {
    unknown += " " + name;
  }
  if (!missing.empty() || !different.empty() || !unknown.empty()) {
    fail("these are not the states of this optimizer" +
             listed("missing:", missing) +
             listed("of another shape or type:", different) +
             listed("unknown:", unknown),
         "Give the states of the same optimizer for the same parameters.");
  }
}

}  // namespace

std::vector<Parameter> whole_parameters(const NamedTensors& tensors) {
  std::vector<Parameter> parameters;
  parameters.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    parameters.push_back({name, tensor, tensor.sizes().vec()});
  }
  return parameters;
}

void Optimizer::set(const NamedTensors& states) {
  const torch::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> given(states.begin(), states.end());
  const NamedTensors own = get();
  check_states(own, given);
  for (const auto& [name, tensor] : own) {
    tensor.copy_(given.at(name));
  }
}

Bytes Optimizer::bytes() const {
  Bytes all;
  for (const auto& [name, tensor] : get()) {
    all += Bytes{static_cast<std::int64_t>(tensor.nbytes())};
  }
  return all;
}

int state_copies(const MakeOptimizer& make) {
  const at::Tensor small = at::zeros({16, 16});
  const at::Tensor large = at::zeros({32, 16});
  const std::int64_t more = bytes_kept(make, large) - bytes_kept(make, small);
  const auto of_values =
      static_cast<std::int64_t>(large.nbytes() - small.nbytes());
  return static_cast<int>((more + of_values - 1) / of_values);
}

}  // namespace cleave
