#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

// Tensors in the files of the Hugging Face world. Nothing in such a file is
// ever executed, and no file can do worse than cause an Error that names it.
namespace cleave {

using TensorMap = std::vector<std::pair<std::string, at::Tensor>>;

struct LoadedTensors {
  TensorMap tensors;  // in the order of the file
  std::map<std::string, std::string> metadata;
};

// Writes the file whole or not at all (AtomicFile). Tensors may be on any
// device and have any strides; one at a time is copied to the CPU where need
// be. Tensors that share memory are written once each. Throws Error for two
// tensors of one name, for dtypes the format lacks, and for a failed write.
// "format" must stay "pt" for the loaders of others.
void save_safetensors(const TensorMap& tensors,
                      const std::filesystem::path& file,
                      const std::map<std::string, std::string>& metadata = {
                          {"format", "pt"}});

// Reads everything, to the CPU, after the whole header was checked. Never takes
// more memory for tensors than the file is long.
LoadedTensors load_safetensors(const std::filesystem::path& file);

}  // namespace cleave
