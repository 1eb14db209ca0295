#include "cleave/model/kernels/gelu.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "cleave/model/kernels/numbers.h"

namespace cleave {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kGeluShare = 1 << 15;  // numbers that pay for a thread

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
    const at::Tensor x = input.contiguous();
    at::Tensor y = at::empty_like(x);
    for_number_type(x, [&]<class Number>(Number /*type*/) {
      const Number* from = numbers<Number>(x);
      Number* to = numbers<Number>(y);
      at::parallel_for(
          0, x.numel(), kGeluShare, [&](std::int64_t first, std::int64_t end) {
            kernels::gelu(from + first, to + first, end - first);
          });
    });
    context->save_for_backward({x});
    return y;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dx = at::empty_like(x);
    for_number_type(x, [&]<class Number>(Number /*type*/) {
      const Number* from = numbers<Number>(x);
      const Number* given = numbers<Number>(dy);
      Number* to = numbers<Number>(dx);
      at::parallel_for(
          0, x.numel(), kGeluShare, [&](std::int64_t first, std::int64_t end) {
            kernels::gelu_backward(
                from + first, given + first, to + first, end - first);
          });
    });
    return {dx};
  }
};

}  // namespace

at::Tensor tanh_gelu(const at::Tensor& x) {
  return has_number_type(x) ? Gelu::apply(x) : at::gelu(x, "tanh");
}

}  // namespace cleave
