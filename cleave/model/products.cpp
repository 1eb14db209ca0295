#include "cleave/model/products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include "cleave/comm/processor.h"
#include "cleave/model/kernels.h"

namespace cleave {
namespace {

// oneDNN's: rows weightᵀ + bias.
using Pointwise = at::Tensor(const at::Tensor&,
                             const at::Tensor&,
                             const std::optional<at::Tensor>&,
                             c10::string_view,
                             c10::List<std::optional<at::Scalar>>,
                             std::optional<c10::string_view>);

const c10::TypedOperatorHandle<Pointwise>* find_onednn() {
  static const auto found =
      []() -> std::optional<c10::TypedOperatorHandle<Pointwise>> {
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {"mkldnn::_linear_pointwise", ""});
    return handle ? std::optional(handle->typed<Pointwise>()) : std::nullopt;
  }();
  return found ? &*found : nullptr;
}

// `shared`: the size of the dimension over which the product sums up.
bool is_for_onednn(const at::Tensor& one,
                   const at::Tensor& other,
                   std::int64_t shared) {
  static const std::optional<std::int64_t> least = onednn_pays_from();
  return least &&
         one.numel() * other.numel() / std::max<std::int64_t>(shared, 1) >=
             *least &&
         one.scalar_type() == at::kFloat && other.scalar_type() == at::kFloat &&
         one.is_cpu() && find_onednn() != nullptr;
}

at::Tensor by_onednn(const at::Tensor& rows,
                     const at::Tensor& weight,
                     const std::optional<at::Tensor>& bias) {
  return find_onednn()->call(
      rows, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

// Lying in order, which takes a copy, columns are multiplied faster by more
// than the copy costs.
at::Tensor in_order(const at::Tensor& columns) {
  const at::Tensor rows = columns.t();
  if (!rows.is_contiguous()) {
    return columns.contiguous();
  }
  at::Tensor copy = at::empty(columns.sizes(), columns.options());
  kernels::transpose(rows.const_data_ptr<float>(),
                     rows.size(0),
                     rows.size(1),
                     copy.mutable_data_ptr<float>());
  return copy;
}

}  // namespace

at::Tensor linear_product(const at::Tensor& input,
                          const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias) {
  if (!is_for_onednn(input, weight, weight.size(1))) {
    return at::linear(input, weight, bias);
  }
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.back() = weight.size(0);
  return by_onednn(input.reshape({-1, input.size(-1)}), weight, bias)
      .view(shape);
}

at::Tensor product(const at::Tensor& rows, const at::Tensor& weight) {
  return is_for_onednn(rows, weight, weight.size(0))
             ? by_onednn(rows, weight.t(), {})
             : rows.mm(weight);
}

at::Tensor weight_product(const at::Tensor& rows, const at::Tensor& input) {
  return is_for_onednn(rows, input, rows.size(0))
             ? by_onednn(in_order(rows.t()), input.t(), {})
             : rows.t().mm(input);
}

}  // namespace cleave
