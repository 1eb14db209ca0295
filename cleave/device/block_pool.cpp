#include "cleave/device/block_pool.h"

#include <c10/core/impl/alloc_cpu.h>

#include <bit>
#include <cassert>

// Blocks that are kept for reuse are poisoned, so that the address sanitizer
// reports an access to them.
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(block, size) static_cast<void>(block)
#define ASAN_UNPOISON_MEMORY_REGION(block, size) static_cast<void>(block)
#endif

namespace cleave {
namespace {

// Sizes are split eightfold between two powers of two.
constexpr int kSplitBits = 3;

// The place of a size among all block sizes.
std::size_t class_of(std::size_t size) {
  const auto power = static_cast<int>(std::bit_width(size)) - 1;
  const std::size_t part = (size >> (power - kSplitBits)) & 7U;
  return (static_cast<std::size_t>(power) << kSplitBits) + part;
}

}  // namespace

std::size_t BlockPool::block_size(std::size_t bytes) {
  assert(bytes >= kSmallest);
  const auto power = static_cast<int>(std::bit_width(bytes)) - 1;
  const std::size_t grain = std::size_t{1} << (power - kSplitBits);
  return (bytes + grain - 1) & ~(grain - 1);
}

void* BlockPool::take(std::size_t size) {
  const std::lock_guard lock(mutex_);
  std::vector<void*>& free = blocks_[class_of(size)];
  if (free.empty()) {
    return nullptr;
  }
  void* block = free.back();
  free.pop_back();
  kept_ -= size;
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  return block;
}

void BlockPool::give(void* block, std::size_t size) {
  const std::lock_guard lock(mutex_);
  ASAN_POISON_MEMORY_REGION(block, size);
  blocks_[class_of(size)].push_back(block);
  kept_ += size;
}

Bytes BlockPool::kept() const {
  const std::lock_guard lock(mutex_);
  return {static_cast<std::int64_t>(kept_)};
}

void BlockPool::flush() {
  const std::lock_guard lock(mutex_);
  for (std::vector<void*>& free : blocks_) {
    for (void* block : free) {
      c10::free_cpu(block);
    }
    free.clear();
  }
  kept_ = 0;
}

}  // namespace cleave
