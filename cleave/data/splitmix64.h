#pragma once

#include <cstdint>

namespace cleave {

// Vigna's splitmix64: a few lines with the same numbers on every machine,
// compiler and library, which std:: distributions do not promise.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound). REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound) {
    // The lowest 2^64 mod bound values would make small results likelier.
    const std::uint64_t excess = (0 - bound) % bound;
    std::uint64_t value = next();
    while (value < excess) {
      value = next();
    }
    return value % bound;
  }

 private:
  std::uint64_t state_;
};

// A seed for one of the things that are drawn under one user-given seed.
inline std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t purpose) {
  return SplitMix64(SplitMix64(seed).next() ^ purpose).next();
}

}  // namespace cleave
