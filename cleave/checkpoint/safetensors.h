#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cleave/checkpoint/safetensors_header.h"

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

// A file of which only some tensors are wanted. It reads with pread, not mmap:
// a file cut short while it is read is an Error, not a signal. Threads may read
// at the same time.
class SafetensorsFile {
 public:
  // Opens the file and checks the header.
  explicit SafetensorsFile(std::filesystem::path file);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const SafetensorsHeader& header() const { return header_; }

  // REQUIRES: `entry` is one of header().entries. Throws Error for a dtype that
  // libtorch lacks.
  at::Tensor read(const SafetensorsEntry& entry) const;

 private:
  void read_bytes(std::uint64_t begin, std::span<std::byte> to) const;
  SafetensorsHeader read_header();

  std::filesystem::path file_;
  int descriptor_ = -1;
  std::uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace cleave
