#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "cleave/checkpoint/safetensors_header.h"

namespace cleave {

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
