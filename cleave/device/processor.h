#pragma once

#include <cstdint>
#include <optional>

namespace cleave {

// The state of a processor's matrix tiles (AMX).
enum class Tiles { none, usable, broken };

// What CPUID returns about tiles.
struct CpuidLeaves {
  std::uint32_t last_leaf = 0;     // the highest leaf
  std::uint32_t features = 0;      // leaf 7, edx
  std::uint32_t last_palette = 0;  // leaf 0x1D, eax
};

// Broken: advertised, but the palette that describes the tiles is hidden, as
// some virtual machines do. The first bf16 product would kill the process.
Tiles tiles_from(const CpuidLeaves& answers);

// Of this machine.
Tiles processor_tiles();

// From how many multiplications on oneDNN's fp32 products are known to be
// faster here than those that libtorch takes; none: never. On AMD with 512-bit
// vectors large ones are, by about a twelfth; from Zen 5 on, whose units are as
// wide as these, also small ones, by a quarter and more.
std::optional<std::int64_t> onednn_pays_from();

// Keeps libtorch's kernels away from broken tiles, unless the user has chosen
// its instruction set already. Must run before the first operation on tensors
// and before other threads read the environment: all code that makes devices or
// a network calls it. Does nothing when it is called again.
void avoid_broken_tiles();

// What that does where tiles are like these.
void avoid_tiles(Tiles tiles);

}  // namespace cleave
