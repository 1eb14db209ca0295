#include "cleave/model/intercept/split_linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <memory>
#include <type_traits>

#include "cleave/model/intercept/graph_node.h"
#include "cleave/model/intercept/intercept.h"
#include "cleave/model/intercept/low_precision.h"
#include "cleave/model/intercept/weight_queue.h"
#include "cleave/model/kernels/numbers.h"
#include "cleave/model/kernels/products.h"

namespace cleave {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr std::int64_t kSmall = 1 << 16;  // numbers

at::Tensor as_rows(const at::Tensor& values) {
  return values.dim() == 2 ? values : values.reshape({-1, values.size(-1)});
}

// Where libtorch's way to a kernel takes longer than ours.
bool is_small(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat && values.is_contiguous() &&
         values.numel() <= kSmall;
}

// Sums of bf16 are made in fp32.
at::Tensor sum_of_rows(const at::Tensor& rows) {
  if (is_small(rows) && rows.size(1) % kernels::kSumColumns == 0) {
    at::Tensor sums = at::empty({rows.size(1)}, rows.options());
    kernels::sum_rows(
        numbers<float>(rows), rows.size(0), rows.size(1), numbers<float>(sums));
    return sums;
  }
  if (rows.scalar_type() != at::kBFloat16) {
    return rows.sum(0);
  }
  if (!rows.is_contiguous()) {
    return rows.sum(0, false, at::kFloat);
  }
  at::Tensor sums = at::zeros({rows.size(1)}, at::dtype(at::kFloat));
  const Bf16* const values = numbers<Bf16>(rows);
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    kernels::add(
        numbers<float>(sums), values + row * rows.size(1), rows.size(1));
  }
  return sums;
}

void relu_in_place(at::Tensor& values) {
  if (is_small(values)) {
    float* const numbers_of = numbers<float>(values);
    kernels::relu(numbers_of, numbers_of, values.numel());
  } else {
    values.relu_();
  }
}

at::Tensor relu_backward(const at::Tensor& gradient, const at::Tensor& result) {
  if (!is_small(gradient) || !is_small(result)) {
    return at::threshold_backward(gradient, result, 0);
  }
  at::Tensor of_input = at::empty_like(gradient);
  kernels::relu_backward(numbers<float>(result),
                         numbers<float>(gradient),
                         numbers<float>(of_input),
                         gradient.numel());
  return of_input;
}

// A node as autograd's own operations have them. torch::autograd::Function
// would do, but takes as long as a small product.
struct LinearBackward : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) {
      return variable_list(3);
    }
    const at::Tensor input = used_input.unpack();
    const at::Tensor weight = used_weight.unpack();
    const at::Tensor rows = as_rows(before_activation(std::move(gradients[0])));
    at::Tensor of_input;
    if (task_should_compute_output(0)) {
      of_input = product(rows, weight);
      if (input.dim() != 2) {
        of_input = of_input.view(input.sizes());
      }
    }
    // Detached: its history would keep what entered the stage.
    Values of_weights = now_or_later(
        {parameter, bias},
        [rows, values = input.detach(), has_bias = bias.defined()] {
          Values result{weight_product(rows, as_rows(values))};
          if (has_bias) {
            result.push_back(sum_of_rows(rows));
          }
          return result;
        });
    return {of_input, std::move(of_weights[0]), std::move(of_weights[1])};
  }

  void release_variables() override {
    used_input.reset_data();
    used_weight.reset_data();
    activated.reset_data();
  }

  std::string name() const override { return "LinearBackward"; }

  // The gradient of what went into the activation. Lets go of what only that
  // needs, before the products take memory.
  at::Tensor before_activation(at::Tensor gradient) {
    if (activation == Activation::none) {
      return gradient;
    }
    gradient = relu_backward(gradient, activated.unpack(getptr()));
    if (!torch::autograd::get_current_graph_task_keep_graph()) {
      activated.reset_data();
    }
    return gradient;
  }

  SavedVariable used_input;
  SavedVariable used_weight;
  SavedVariable activated;  // where there is an activation
  Activation activation = Activation::none;
  at::Tensor parameter;
  at::Tensor bias;  // undefined where there is none
};

}  // namespace

at::Tensor split_linear(const at::Tensor& input,
                        const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias,
                        Activation activation) {
  const auto node = make_node<LinearBackward>();
  node->activation = activation;
  node->parameter = weight;
  node->bias = bias.value_or(at::Tensor());
  node->set_next_edges(
      torch::autograd::collect_next_edges(input, weight, node->bias));
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard not_again(kInterceptKey);
    const at::Tensor used_input = computed_with(input);
    const at::Tensor used_weight = computed_with(weight);
    node->used_input = SavedVariable(used_input, /*is_output=*/false);
    node->used_weight = SavedVariable(used_weight, /*is_output=*/false);
    result = linear_product(used_input,
                            used_weight,
                            bias ? std::optional(computed_with(*bias)) : bias);
    if (activation == Activation::relu) {
      relu_in_place(result);
    }
  }
  torch::autograd::set_history(result, node);
  if (activation != Activation::none) {
    node->activated = SavedVariable(result, /*is_output=*/true);
  }
  return result;
}

}  // namespace cleave
