// Real fuzzing, where clang is at hand (from the repository's root):
//   clang++ -std=c++20 -g -fsanitize=fuzzer,address,undefined -I.
//     tests/fuzz/idx_fuzz.cpp cleave/data/idx.cpp cleave/error.cpp -lz
#include <cstdlib>

#include "cleave/data/idx.h"
#include "cleave/error.h"
#include "tests/fuzz/mutate.h"

// Either an array whose values fill its shape, or Error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  try {
    const cleave::IdxArray array = cleave::parse_idx({data, size}, "input");
    std::uint64_t values = 1;
    for (const std::int64_t dimension : array.shape) {
      values *= static_cast<std::uint64_t>(dimension);
    }
    if (array.values.size() != values) {
      std::abort();
    }
  } catch (const cleave::Error&) {
  }
  return 0;
}
