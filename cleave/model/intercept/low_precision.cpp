#include "cleave/model/intercept/low_precision.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "cleave/device/device.h"
#include "cleave/error.h"
#include "cleave/model/intercept/weight_queue.h"

namespace cleave {
namespace {

LowCopies*& current_copies() {
  // NOLINTNEXTLINE: libtorch calls the operations.
  thread_local LowCopies* current = nullptr;
  return current;
}

Autocast autocast_now() {
  return {at::autocast::is_autocast_enabled(at::kCPU),
          at::autocast::get_autocast_dtype(at::kCPU),
          at::autocast::is_autocast_cache_enabled()};
}

void set_autocast(const Autocast& wanted) {
  at::autocast::set_autocast_enabled(at::kCPU, wanted.enabled);
  at::autocast::set_autocast_dtype(at::kCPU, wanted.type);
  at::autocast::set_autocast_cache_enabled(wanted.keeps);
}

}  // namespace

at::Tensor LowCopies::of(const at::Tensor& parameter) {
  Copy& copy = copies_[parameter.unsafeGetTensorImpl()];
  if (!copy.low.defined() || copy.version != parameter._version()) {
    const torch::NoGradGuard no_grad;
    copy = {parameter, parameter._version(), parameter.to(at::kBFloat16)};
  }
  return copy.low;
}

void LowCopies::renew() {
  const torch::NoGradGuard no_grad;
  for (auto& [key, copy] : copies_) {
    if (copy.version != copy.parameter._version()) {
      copy.low.copy_(copy.parameter);
      copy.version = copy.parameter._version();
    }
  }
}

Bytes LowCopies::bytes() const {
  Bytes total;
  for (const auto& [parameter, copy] : copies_) {
    total += Bytes{static_cast<std::int64_t>(copy.low.nbytes())};
  }
  return total;
}

LowPrecisionForward::LowPrecisionForward(LowCopies& copies)
    : before_(autocast_now()) {
  if (!process_hooks().dispatcher) {
    fail("bf16 needs the dispatcher hook, which this process leaves out",
         "Use it, or compute in fp32.");
  }
  install_split_operations();
  current_copies() = &copies;
  // Its memory of casts is one for all threads; ours is not.
  set_autocast({.enabled = true, .type = at::kBFloat16, .keeps = false});
}

LowPrecisionForward::~LowPrecisionForward() {
  set_autocast(before_);
  current_copies() = nullptr;
}

at::Tensor computed_with(const at::Tensor& tensor) {
  LowCopies* const copies = current_copies();
  if (copies == nullptr || !tensor.defined() ||
      tensor.scalar_type() != at::kFloat) {
    return tensor;
  }
  return tensor.is_leaf() && tensor.requires_grad() ? copies->of(tensor)
                                                    : tensor.to(at::kBFloat16);
}

}  // namespace cleave
