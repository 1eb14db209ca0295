#include "cleave/comm/text_tensor.h"

#include <torch/types.h>

#include <algorithm>

namespace cleave {

at::Tensor tensor_of(const std::string& text) {
  at::Tensor bytes =
      at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::ranges::copy(text, static_cast<char*>(bytes.data_ptr()));
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()),
          static_cast<std::size_t>(bytes.numel())};
}

}  // namespace cleave
