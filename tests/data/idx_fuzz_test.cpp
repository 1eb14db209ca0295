#include <gtest/gtest.h>

#include "tests/data/gzip.h"
#include "tests/fuzz/mutate.h"

namespace cleave {
namespace {

TEST(IdxFuzz, damaged_files_are_read_or_refused_but_never_crash) {
  ByteString plain{0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 5};
  for (std::uint8_t i = 0; i < 15; ++i) {
    plain.push_back(i);
  }
  std::mt19937_64 draws(1);
  for (const ByteString& valid : {plain, gzipped(plain)}) {
    LLVMFuzzerTestOneInput(valid.data(), valid.size());
    for (int i = 0; i < 3000; ++i) {
      const ByteString damaged = mutated(valid, draws);
      LLVMFuzzerTestOneInput(damaged.data(), damaged.size());
      // Behind a good checksum, so that the header's own checks are reached.
      const ByteString packed = gzipped(mutated(plain, draws));
      LLVMFuzzerTestOneInput(packed.data(), packed.size());
    }
  }
}

}  // namespace
}  // namespace cleave
