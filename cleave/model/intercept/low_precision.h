#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "cleave/model/intercept/intercept.h"
#include "cleave/units.h"

// Computing in bf16 with parameters in fp32.
namespace cleave {

// bf16 copies of parameters. Used by one thread at a time.
class LowCopies {
 public:
  // Made anew when the parameter was changed in place since the last call.
  at::Tensor of(const at::Tensor& parameter);

  // Brings all copies up to date now. REQUIRES: no backward needs the old ones.
  void renew();

  Bytes bytes() const;

 private:
  struct Copy {
    at::Tensor parameter;
    std::int64_t version = 0;  // of the parameter when it was copied
    at::Tensor low;
  };

  std::map<at::TensorImpl*, Copy> copies_;
};

// How libtorch casts for a thread.
struct Autocast {
  bool enabled;
  at::ScalarType type;
  bool keeps;  // what it has cast
};

// While it lives, what this thread computes is computed in bf16: matrix
// products, convolutions, attention and embeddings give bf16, and with them all
// that follows from their results; sums inside norms and losses stay in fp32.
// Gradients have the type of what they belong to. Does not nest.
class LowPrecisionForward {
 public:
  explicit LowPrecisionForward(LowCopies& copies);
  ~LowPrecisionForward();
  LowPrecisionForward(const LowPrecisionForward&) = delete;
  LowPrecisionForward& operator=(const LowPrecisionForward&) = delete;

 private:
  Intercept intercept_;
  Autocast before_;
};

// What this thread computes with: `tensor` itself, or its bf16 version while a
// LowPrecisionForward lives. Parameters are copied once for many calls.
at::Tensor computed_with(const at::Tensor& tensor);

}  // namespace cleave
