#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cleave/units.h"

namespace cleave {

// Counts the bytes of CPU tensors that one device allocated and that still
// live, whoever frees them. Thread-safe.
class MemoryMeter {
 public:
  Bytes live() const { return {live_.load(std::memory_order_relaxed)}; }
  Bytes peak() const { return {peak_.load(std::memory_order_relaxed)}; }

  // Lets peak() start again from what lives now.
  void reset_peak();

  void add(Bytes bytes);
  void remove(Bytes bytes);

 private:
  std::atomic<std::int64_t> live_ = 0;
  std::atomic<std::int64_t> peak_ = 0;
};

// While it lives, tensors that this thread allocates count on `meter`. The
// meter is shared: its device reads it, and every tensor it counted keeps it
// until the tensor is freed.
class MeteredScope {
 public:
  explicit MeteredScope(std::shared_ptr<MemoryMeter> meter);
  ~MeteredScope();
  MeteredScope(const MeteredScope&) = delete;
  MeteredScope& operator=(const MeteredScope&) = delete;

 private:
  std::shared_ptr<MemoryMeter> before_;
};

}  // namespace cleave
