#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

// IDX, the file format of the MNIST family: 00 00, type, number of dimensions,
// a big-endian 32-bit size for each, then the values; often gzip'd.
namespace cleave {

struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;  // row-major
};

// Reads a file of bytes (type 0x08), gzip'd or not. Throws Error that names the
// file unless it is exactly one such array: nothing missing, nothing behind it.
// Never takes more memory than the file's bytes can unpack to.
IdxArray read_idx(const std::filesystem::path& file);

// The same for bytes in memory; `source` names them in errors.
IdxArray parse_idx(std::span<const std::uint8_t> bytes,
                   const std::string& source);

}  // namespace cleave
