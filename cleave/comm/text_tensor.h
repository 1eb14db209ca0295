#pragma once

#include <ATen/core/Tensor.h>

#include <string>

// Text as a tensor, which is what messages are made of, and back.
namespace cleave {

at::Tensor tensor_of(const std::string& text);
std::string text_of(const at::Tensor& bytes);

}  // namespace cleave
