#include <gtest/gtest.h>

#include "cleave/checkpoint/safetensors_header.h"
#include "tests/fuzz/mutate.h"

namespace cleave {
namespace {

ByteString valid_file() {
  const auto entry =
      [](const char* name, const char* dtype, std::vector<std::int64_t> shape) {
        return SafetensorsEntry{
            .name = name, .dtype = dtype, .shape = std::move(shape)};
      };
  const SafetensorsHeader header =
      laid_out({{entry("layer.weight", "F32", {2, 3}),
                 entry("layer.bias", "BF16", {2}),
                 entry("steps", "I64", {}),
                 entry("none", "U8", {0, 4})},
                {{"format", "pt"}}},
               "valid");
  const std::string start = to_file_start(header, "valid");
  ByteString bytes(start.begin(), start.end());
  bytes.resize(bytes.size() + 36);  // 24 + 4 + 8
  return bytes;
}

// Mutated within its header, with the length put right, so that the JSON's own
// checks are reached.
ByteString mutated_header(const ByteString& valid, std::mt19937_64& draws) {
  const ByteString json(valid.begin() + 8, valid.end() - 36);
  ByteString bytes = mutated(json, draws);
  const std::size_t length = bytes.size();
  ByteString prefix(8);
  for (std::size_t i = 0; i < 8; ++i) {
    prefix[i] = static_cast<std::uint8_t>(length >> (8 * i));
  }
  bytes.insert(bytes.begin(), prefix.begin(), prefix.end());
  bytes.insert(bytes.end(), valid.end() - 36, valid.end());
  return bytes;
}

TEST(SafetensorsFuzz, damaged_files_are_read_or_refused_but_never_crash) {
  const ByteString valid = valid_file();
  LLVMFuzzerTestOneInput(valid.data(), valid.size());
  std::mt19937_64 draws(1);
  for (int i = 0; i < 5000; ++i) {
    const ByteString damaged = mutated(valid, draws);
    LLVMFuzzerTestOneInput(damaged.data(), damaged.size());
    const ByteString header = mutated_header(valid, draws);
    LLVMFuzzerTestOneInput(header.data(), header.size());
  }
}

}  // namespace
}  // namespace cleave
