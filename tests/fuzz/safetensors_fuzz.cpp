// Real fuzzing, where clang is at hand (from the repository's root):
//   clang++ -std=c++20 -g -fsanitize=fuzzer,address,undefined -I.
//     tests/fuzz/safetensors_fuzz.cpp cleave/checkpoint/safetensors_header.cpp
//     cleave/checkpoint/safetensors_json.cpp cleave/error.cpp
#include <cstdlib>
#include <string_view>

#include "cleave/checkpoint/safetensors_header.h"
#include "cleave/error.h"
#include "tests/fuzz/mutate.h"

namespace cleave {
namespace {

// What was read can be written, and is then read as the same.
void check_round_trip(const SafetensorsHeader& header) {
  const SafetensorsHeader placed = laid_out(header, "copy");
  const std::string start = to_file_start(placed, "copy");
  const std::uint64_t data =
      placed.entries.empty() ? 0 : placed.entries.back().end;
  const SafetensorsHeader again = parse_safetensors_header(
      std::string_view(start).substr(8), start.size() + data, "copy");
  if (laid_out(again, "again") != placed) {
    std::abort();
  }
}

}  // namespace
}  // namespace cleave

// Either a sound header or Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  cleave::SafetensorsHeader header;
  try {
    const std::uint64_t length = cleave::safetensors_header_length(
        file.substr(0, cleave::kSafetensorsPrefix), size, "input");
    header = cleave::parse_safetensors_header(
        file.substr(cleave::kSafetensorsPrefix, length), size, "input");
  } catch (const cleave::Error&) {
    return 0;
  }
  cleave::check_round_trip(header);
  return 0;
}
