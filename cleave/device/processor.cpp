#include "cleave/device/processor.h"

#include <cstdlib>
#include <mutex>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cleave {
namespace {

constexpr std::uint32_t kFeatureLeaf = 7;
constexpr std::uint32_t kPaletteLeaf = 0x1D;
constexpr std::uint32_t kTileFeature = 1U << 24;

CpuidLeaves ask_processor() {
  CpuidLeaves answers;
#if defined(__x86_64__)
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  answers.last_leaf = __get_cpuid_max(0, nullptr);
  if (__get_cpuid_count(kFeatureLeaf, 0, &eax, &ebx, &ecx, &edx) != 0) {
    answers.features = edx;
  }
  if (__get_cpuid_count(kPaletteLeaf, 0, &eax, &ebx, &ecx, &edx) != 0) {
    answers.last_palette = eax;
  }
#endif
  return answers;
}

}  // namespace

Tiles tiles_from(const CpuidLeaves& answers) {
  if ((answers.features & kTileFeature) == 0) {
    return Tiles::none;
  }
  const bool has_palette =
      answers.last_leaf >= kPaletteLeaf && answers.last_palette > 0;
  return has_palette ? Tiles::usable : Tiles::broken;
}

Tiles processor_tiles() {
  static const Tiles tiles = tiles_from(ask_processor());
  return tiles;
}

std::optional<std::int64_t> onednn_pays_from() {
#if defined(__x86_64__)
  // Below that, the longer way to it takes more than it saves.
  constexpr std::int64_t kLarge = 1 << 24;
  constexpr std::int64_t kSmall = 1 << 20;
  if (__builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx512f") != 0) {
    const bool zen5 = __builtin_cpu_supports("avx512vp2intersect") != 0;
    return zen5 ? kSmall : kLarge;
  }
#endif
  return std::nullopt;
}

void avoid_broken_tiles() {
  static std::once_flag done;
  std::call_once(done, avoid_tiles, processor_tiles());
}

void avoid_tiles(Tiles tiles) {
  if (tiles == Tiles::broken) {
    constexpr int kKeepTheUsers = 0;
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", kKeepTheUsers);
  }
}

}  // namespace cleave
