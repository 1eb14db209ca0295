#include "cleave/model/kernels/products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <algorithm>

#include "cleave/device/processor.h"
#include "cleave/model/kernels/kernels.h"

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

// The same matrix the other way around in memory.
at::Tensor turned(const at::Tensor& rows) {
  if (rows.stride(1) != 1) {
    return rows.t().contiguous();
  }
  at::Tensor columns = at::empty({rows.size(1), rows.size(0)}, rows.options());
  kernels::transpose(rows.const_data_ptr<float>(),
                     rows.stride(0),
                     rows.size(0),
                     rows.size(1),
                     columns.mutable_data_ptr<float>());
  return columns;
}

// Turned, which takes a copy, rows are multiplied faster by more than the copy
// costs. Of the scores of a large vocabulary only so much is there twice.
at::Tensor weight_product_by_onednn(const at::Tensor& rows,
                                    const at::Tensor& input) {
  constexpr std::int64_t kMostColumns = 2048;
  const std::int64_t columns = rows.size(1);
  if (columns <= kMostColumns) {
    return by_onednn(turned(rows), input.t(), {});
  }
  at::Tensor result = at::empty({columns, input.size(1)}, input.options());
  for (std::int64_t first = 0; first < columns; first += kMostColumns) {
    const std::int64_t count = std::min(kMostColumns, columns - first);
    result.narrow(0, first, count)
        .copy_(by_onednn(turned(rows.narrow(1, first, count)), input.t(), {}));
  }
  return result;
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
             ? weight_product_by_onednn(rows, input)
             : rows.t().mm(input);
}

}  // namespace cleave
