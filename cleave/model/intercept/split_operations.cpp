// The operations whose backward can be split: each keeps what autograd would
// keep and computes what autograd would compute, the gradient of its weights
// later. Gradients have the same bits, split or not. All compute in the
// precision of the thread.
#include <ATen/native/NonSymbolicBC.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/library.h>
#include <torch/types.h>

#include <string_view>
#include <typeinfo>

#include "cleave/model/intercept/intercept.h"
#include "cleave/model/intercept/low_precision.h"
#include "cleave/model/intercept/split_linear.h"
#include "cleave/model/intercept/weight_queue.h"

namespace cleave {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gradient of an embedding's weights. Sparse where it may be: a microbatch
// uses few of the rows. What repeats in a microbatch is added in its order, as
// autograd does; coalesce() would not keep it.
at::Tensor rows_gradient(const at::Tensor& gradient,
                         const at::Tensor& indices,
                         std::int64_t count,
                         std::int64_t padding,
                         bool scaled) {
  if (scaled || padding >= 0) {
    return at::embedding_backward(
        gradient, indices, count, padding, scaled, /*sparse=*/false);
  }
  const auto [rows, places, _] =
      at::_unique2(indices, /*sorted=*/true, /*return_inverse=*/true);
  const at::Tensor sums = at::embedding_backward(gradient,
                                                 places,
                                                 rows.size(0),
                                                 padding,
                                                 scaled,
                                                 /*sparse=*/false);
  return at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0),
                                       sums,
                                       {count, sums.size(1)},
                                       sums.options().layout(at::kSparse),
                                       /*is_coalesced=*/true);
}

struct SplitEmbedding : torch::autograd::Function<SplitEmbedding> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& weight,
                            const at::Tensor& indices,
                            std::int64_t padding,
                            bool scaled) {
    context->save_for_backward({weight, indices});
    context->saved_data["padding"] = padding;
    context->saved_data["scaled"] = scaled;
    return computed_with(
        at::embedding(weight, indices, padding, scaled, false));
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[0];
    const variable_list of_weights =
        now_or_later({weight},
                     [gradient = gradients[0],
                      type = weight.scalar_type(),
                      indices = saved[1],
                      count = weight.size(0),
                      padding = context->saved_data["padding"].toInt(),
                      scaled = context->saved_data["scaled"].toBool()] {
                       return Values{rows_gradient(
                           gradient.to(type), indices, count, padding, scaled)};
                     });
    return {of_weights[0], {}, {}, {}};
  }
};

// How a convolution slides.
struct Sliding {
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
  bool transposed = false;
  std::vector<std::int64_t> output_padding;
  std::int64_t groups = 1;
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::vector<std::int64_t>& bias_sizes,
    const Sliding& sliding,
    std::array<bool, 3> wanted) {
  return at::convolution_backward(gradient,
                                  input,
                                  weight,
                                  bias_sizes.empty()
                                      ? at::OptionalIntArrayRef()
                                      : at::OptionalIntArrayRef(bias_sizes),
                                  sliding.stride,
                                  sliding.padding,
                                  sliding.dilation,
                                  sliding.transposed,
                                  sliding.output_padding,
                                  sliding.groups,
                                  wanted);
}

struct SplitConvolution : torch::autograd::Function<SplitConvolution> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& input,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const Sliding& sliding) {
    const at::Tensor used_input = computed_with(input);
    const at::Tensor used_weight = computed_with(weight);
    context->save_for_backward(
        {used_input, used_weight, weight, bias.value_or(at::Tensor())});
    context->saved_data["stride"] = sliding.stride;
    context->saved_data["padding"] = sliding.padding;
    context->saved_data["dilation"] = sliding.dilation;
    context->saved_data["transposed"] = sliding.transposed;
    context->saved_data["output_padding"] = sliding.output_padding;
    context->saved_data["groups"] = sliding.groups;
    return at::convolution(used_input,
                           used_weight,
                           bias ? std::optional(computed_with(*bias)) : bias,
                           sliding.stride,
                           sliding.padding,
                           sliding.dilation,
                           sliding.transposed,
                           sliding.output_padding,
                           sliding.groups);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gradient = gradients[0];
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const Sliding sliding = sliding_of(*context);
    const std::vector<std::int64_t> bias_sizes =
        saved[3].defined() ? saved[3].sizes().vec()
                           : std::vector<std::int64_t>();
    at::Tensor of_input;
    if (context->needs_input_grad(0)) {
      of_input = std::get<0>(convolution_backward(
          gradient, input, weight, bias_sizes, sliding, {true, false, false}));
    }
    const variable_list of_weights = now_or_later(
        {saved[2], saved[3]},
        [gradient, values = input.detach(), weight, bias_sizes, sliding] {
          const bool has_bias = !bias_sizes.empty();
          const auto [none, of_weight, of_bias] =
              convolution_backward(gradient,
                                   values,
                                   weight,
                                   bias_sizes,
                                   sliding,
                                   {false, true, has_bias});
          return has_bias ? Values{of_weight, of_bias} : Values{of_weight};
        });
    return {of_input, of_weights[0], of_weights[1], {}};
  }

 private:
  static Sliding sliding_of(AutogradContext& context) {
    auto& data = context.saved_data;
    return {data["stride"].toIntVector(),
            data["padding"].toIntVector(),
            data["dilation"].toIntVector(),
            data["transposed"].toBool(),
            data["output_padding"].toIntVector(),
            data["groups"].toInt()};
  }
};

at::Tensor linear(c10::DispatchKeySet keys,
                  const at::Tensor& input,
                  const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  if (can_split(weight, bias) && input.dim() >= 2 && weight.dim() == 2) {
    return split_linear(input, weight, bias);
  }
  return at::_ops::linear::redispatch(
      keys & kAfterIntercept,
      computed_with(input),
      computed_with(weight),
      bias ? std::optional(computed_with(*bias)) : bias);
}

// Whether the node belongs to a transpose. Its own name() says it too, but
// takes longer than a small product.
bool is_transpose(const torch::autograd::Node& node) {
  return std::string_view(typeid(node).name()).ends_with("10TBackward0E");
}

// The parameter that `tensor` is the transpose of; undefined if it is none.
at::Tensor transposed_parameter(const at::Tensor& tensor) {
  const auto node = tensor.requires_grad() ? tensor.grad_fn() : nullptr;
  if (node == nullptr || tensor.dim() != 2 || !is_transpose(*node)) {
    return {};
  }
  const auto* sum = dynamic_cast<torch::autograd::AccumulateGrad*>(
      node->next_edge(0).function.get());
  return sum != nullptr ? sum->variable : at::Tensor();
}

// torch::nn::Linear is addmm or matmul with the transpose of its weight.
at::Tensor addmm(c10::DispatchKeySet keys,
                 const at::Tensor& bias,
                 const at::Tensor& input,
                 const at::Tensor& matrix,
                 const at::Scalar& beta,
                 const at::Scalar& alpha) {
  const at::Tensor weight = transposed_parameter(matrix);
  if (weight.defined() && bias.dim() == 1 && can_split(weight, bias) &&
      beta.equal(1) && alpha.equal(1)) {
    return split_linear(input, weight, std::optional(bias));
  }
  return at::_ops::addmm::redispatch(
      keys & kAfterIntercept, bias, input, matrix, beta, alpha);
}

at::Tensor matmul(c10::DispatchKeySet keys,
                  const at::Tensor& input,
                  const at::Tensor& matrix) {
  const at::Tensor weight = transposed_parameter(matrix);
  if (weight.defined() && can_split(weight) && input.dim() >= 2) {
    return split_linear(input, weight, std::optional<at::Tensor>());
  }
  return at::_ops::matmul::redispatch(keys & kAfterIntercept, input, matrix);
}

at::Tensor embedding(c10::DispatchKeySet keys,
                     const at::Tensor& weight,
                     const at::Tensor& indices,
                     c10::SymInt padding,
                     bool scaled,
                     bool sparse) {
  if (can_split(weight) && !sparse) {
    return SplitEmbedding::apply(weight, indices, padding.expect_int(), scaled);
  }
  return at::_ops::embedding::redispatch(keys & kAfterIntercept,
                                         weight,
                                         indices,
                                         std::move(padding),
                                         scaled,
                                         sparse);
}

at::Tensor convolution(c10::DispatchKeySet keys,
                       const at::Tensor& input,
                       const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding,
                       c10::SymIntArrayRef dilation,
                       bool transposed,
                       c10::SymIntArrayRef output_padding,
                       c10::SymInt groups) {
  if (can_split(weight, bias)) {
    return SplitConvolution::apply(
        input,
        weight,
        bias,
        Sliding{C10_AS_INTARRAYREF_SLOW(stride).vec(),
                C10_AS_INTARRAYREF_SLOW(padding).vec(),
                C10_AS_INTARRAYREF_SLOW(dilation).vec(),
                transposed,
                C10_AS_INTARRAYREF_SLOW(output_padding).vec(),
                groups.expect_int()});
  }
  return at::_ops::convolution::redispatch(keys & kAfterIntercept,
                                           input,
                                           weight,
                                           bias,
                                           stride,
                                           padding,
                                           dilation,
                                           transposed,
                                           output_padding,
                                           std::move(groups));
}

}  // namespace

void install_split_operations() {
  static torch::Library library(
      torch::Library::IMPL, "aten", kInterceptKey, __FILE__, __LINE__);
  static const bool installed = [] {
    library.impl("linear", linear);
    library.impl("addmm", addmm);
    library.impl("matmul", matmul);
    library.impl("embedding", embedding);
    library.impl("convolution", convolution);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace cleave
