#include "cleave/comm/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <new>
#include <utility>

namespace cleave {
namespace {

// Which meter counts this thread's allocations; null: nobody does.
std::shared_ptr<MemoryMeter>& current_meter() {
  thread_local std::shared_ptr<MemoryMeter> meter;
  return meter;
}

// Lies in front of every block: what is needed when it is freed, by whichever
// thread. As large as libtorch's alignment, so that the block keeps it.
struct alignas(c10::gAlignment) BlockHeader {
  Bytes bytes;
  std::shared_ptr<MemoryMeter> meter;
};

void free_block(void* data) {
  if (data == nullptr) {
    return;
  }
  BlockHeader* header = static_cast<BlockHeader*>(data) - 1;
  if (header->meter) {
    header->meter->remove(header->bytes);
  }
  header->~BlockHeader();
  c10::free_cpu(header);
}

// libtorch's own CPU allocation, counted where a meter is current.
class MeteringAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    void* data = size == 0 ? nullptr : allocate_block(size);
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static void* allocate_block(size_t size) {
    void* memory = c10::alloc_cpu(size + sizeof(BlockHeader));
    auto* header = new (memory)
        BlockHeader{{static_cast<std::int64_t>(size)}, current_meter()};
    if (header->meter) {
      header->meter->add(header->bytes);
    }
    return header + 1;
  }
};

void install_allocator() {
  static MeteringAllocator allocator;
  static const bool installed = [] {
    constexpr uint8_t kPriority = 1;  // above libtorch's own, which has 0
    c10::SetCPUAllocator(&allocator, kPriority);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

void MemoryMeter::reset_peak() {
  peak_.store(live_.load());
}

void MemoryMeter::add(Bytes bytes) {
  const std::int64_t now = live_.fetch_add(bytes.value) + bytes.value;
  std::int64_t peak = peak_.load();
  while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
  }
}

void MemoryMeter::remove(Bytes bytes) {
  live_.fetch_sub(bytes.value);
}

MeteredScope::MeteredScope(std::shared_ptr<MemoryMeter> meter)
    : before_(std::exchange(current_meter(), std::move(meter))) {
  install_allocator();
}

MeteredScope::~MeteredScope() {
  current_meter() = std::move(before_);
}

}  // namespace cleave
