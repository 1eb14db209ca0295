#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "cleave/device/block_pool.h"
#include "cleave/units.h"

namespace cleave {

// The memory of one device: the bytes of CPU tensors that it allocated and that
// still live, whoever frees them; the blocks it keeps for reuse; its budget.
// Thread-safe. Devices write to theirs all the time: no two in one cache line,
// nor in two that are fetched together.
class alignas(128) DeviceMemory {
 public:
  // A budget of zero is none. The name is for the error when it is exceeded.
  explicit DeviceMemory(std::string device = "", Bytes budget = {});

  // The memory of no device, for tensors that many read at the same time:
  // whoever is given one, it stays here.
  static std::shared_ptr<DeviceMemory> of_all();

  Bytes live() const { return {live_.load(std::memory_order_relaxed)}; }
  Bytes peak() const { return {peak_.load(std::memory_order_relaxed)}; }

  // Freed, and kept for the next tensor of its size. When a new block is needed
  // while this and what lives exceed the peak by a quarter, it all goes back to
  // the system.
  Bytes kept() const { return pool_.kept(); }

  // Lets peak() start again from what lives now.
  void reset_peak();

  // Memory for a tensor, aligned as libtorch wants it. Throws Error that names
  // device and bytes when the budget does not allow it.
  static void* allocate(std::size_t bytes,
                        const std::shared_ptr<DeviceMemory>& memory);

  // Frees what allocate() gave, on any thread.
  static void free(void* data);

  // Counts what allocate() gave as this device's from now on, unless it is of
  // all. Throws Error when the budget does not allow it. No two threads at the
  // same time.
  static void hand_over(void* data,
                        const std::shared_ptr<DeviceMemory>& receiver);

 private:
  void claim(std::size_t bytes);
  void* take_block(std::size_t size);

  std::string device_;
  Bytes budget_;
  bool is_of_all_ = false;
  std::atomic<std::int64_t> live_ = 0;
  std::atomic<std::int64_t> peak_ = 0;
  BlockPool pool_;
};

// Whether this is the only handle to the tensor, and the only one to its
// memory.
bool is_held_once(const at::Tensor& tensor);

// Counts the tensor's memory as that of this thread's device, where it was
// another device's: a message belongs to its receiver.
void take_over(const at::Tensor& tensor);

// What a thread received from another device, taken over. A small tensor with
// no other handle is copied: one pass over it costs less than computing with
// data in another core's caches. Its block returns to the sender's device.
at::Tensor received(at::Tensor tensor);

// While it lives, tensors that this thread allocates are in `memory`, which is
// shared: its device reads it, and every tensor in it keeps it until the tensor
// is freed. From the first scope on, every CPU tensor of the process is
// allocated here; those outside of any scope belong to no device. Without the
// allocator hook nothing is allocated here, and nothing counted.
class MemoryScope {
 public:
  explicit MemoryScope(std::shared_ptr<DeviceMemory> memory);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  // That of this thread; null outside of any scope.
  static std::shared_ptr<DeviceMemory> current();

 private:
  std::shared_ptr<DeviceMemory> before_;
};

}  // namespace cleave
