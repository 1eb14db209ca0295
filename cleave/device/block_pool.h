#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

#include "cleave/units.h"

namespace cleave {

// Blocks of memory that were freed and wait to be used again. A large block
// that goes back to the system costs a page fault per 4 KiB when the next one
// is touched; one that stays costs nothing and is often still in the cache.
// Thread-safe.
class BlockPool {
 public:
  BlockPool() = default;
  ~BlockPool() { flush(); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Smaller ones are for the system's own allocator, which is good at them.
  static constexpr std::size_t kSmallest = std::size_t{32} << 10U;

  // The size blocks for `bytes` have, at most an eighth more. Any block of
  // that size serves any request for it. REQUIRES: bytes >= kSmallest.
  static std::size_t block_size(std::size_t bytes);

  // A block of `size`, the one given last; null where there is none.
  void* take(std::size_t size);

  // Keeps a block that came from the system's aligned allocation.
  void give(void* block, std::size_t size);

  // What it keeps.
  Bytes kept() const;

  // Returns everything to the system.
  void flush();

 private:
  static constexpr std::size_t kClasses = std::size_t{8} * 64;

  mutable std::mutex mutex_;  // guards all below
  std::array<std::vector<void*>, kClasses> blocks_;
  std::size_t kept_ = 0;
};

}  // namespace cleave
