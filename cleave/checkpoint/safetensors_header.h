#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// The head of a safetensors file, without a tensor in sight. A file is
//   8 bytes   the length of the header, little-endian
//   header    JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]},
//             and "__metadata__" -> {string: string}
//   data      the tensors, row-major, little-endian, without holes
// A file may come from anyone, so everything it says is checked, and whatever
// is in doubt is refused. Errors begin with `source`, the name of the file.
namespace cleave {

inline constexpr std::uint64_t kSafetensorsPrefix = 8;  // bytes
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::uint64_t kMaxSafetensorsInteger = (1ULL << 48) - 1;
inline constexpr std::size_t kMaxSafetensorsTensors = 1'000'000;
inline constexpr std::size_t kMaxSafetensorsName = 1024;  // bytes
inline constexpr std::size_t kMaxSafetensorsDimensions = 64;
inline constexpr const char* kSafetensorsMetadata = "__metadata__";

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file writes it: "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // within the data
  std::uint64_t end = 0;

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  bool operator==(const SafetensorsHeader&) const = default;
};

// The length of the header, from the first 8 bytes of the file, or from all of
// them where it has fewer.
std::uint64_t safetensors_header_length(std::string_view first_bytes,
                                        std::uint64_t file_size,
                                        const std::string& source);

// The header, from its JSON, which ends within the file; the entries in the
// order of their data. Throws Error unless it is sound: every name unique and
// printable, every dtype known, every tensor as long as its shape says, and the
// tensors fill the file exactly.
SafetensorsHeader parse_safetensors_header(std::string_view json,
                                           std::uint64_t file_size,
                                           const std::string& source);

// Sorts the entries as the reference writer does, the dtypes with the strictest
// alignment first, then by name, and gives them their places. Throws Error for
// names, dtypes and shapes that no reader would accept.
SafetensorsHeader laid_out(SafetensorsHeader header, const std::string& source);

// The first bytes of the file: length and JSON, padded with spaces so that the
// data begin at a multiple of 8. REQUIRES: `header` is laid out.
std::string to_file_start(const SafetensorsHeader& header,
                          const std::string& source);

}  // namespace cleave
