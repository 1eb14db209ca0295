#include "cleave/device/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <new>
#include <utility>

#include "cleave/device/device.h"
#include "cleave/error.h"

namespace cleave {
namespace {

// Where this thread's tensors go; null: to no device.
std::shared_ptr<DeviceMemory>& current_memory() {
  thread_local std::shared_ptr<DeviceMemory> memory;
  return memory;
}

// Lies in front of every block: what is needed when it is freed, by whichever
// thread. As large as libtorch's alignment, so that the block keeps it.
struct alignas(c10::gAlignment) BlockHeader {
  std::size_t bytes = 0;  // that were asked for
  std::size_t block = 0;  // of the whole block; 0: too small for the pool
  std::shared_ptr<DeviceMemory> memory;
};

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    void* data =
        size == 0 ? nullptr : DeviceMemory::allocate(size, current_memory());
    return {data, data, &DeviceMemory::free, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &DeviceMemory::free; }

  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

void install_allocator() {
  static DeviceAllocator allocator;
  static const bool installed = [] {
    if (!process_hooks().allocator) {
      return false;
    }
    constexpr uint8_t kPriority = 1;  // above libtorch's own, which has 0
    c10::SetCPUAllocator(&allocator, kPriority);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

DeviceMemory::DeviceMemory(std::string device, Bytes budget)
    : device_(std::move(device)), budget_(budget) {}

std::shared_ptr<DeviceMemory> DeviceMemory::of_all() {
  auto memory = std::make_shared<DeviceMemory>();
  memory->is_of_all_ = true;
  return memory;
}

void DeviceMemory::reset_peak() {
  peak_.store(live_.load());
}

// Counts the bytes as live, if the budget has room for them.
void DeviceMemory::claim(std::size_t bytes) {
  const auto more = static_cast<std::int64_t>(bytes);
  const std::int64_t now = live_.fetch_add(more) + more;
  if (budget_.value > 0 && now > budget_.value) {
    live_.fetch_sub(more);
    fail("device '" + device_ + "' has a budget of " + to_text(budget_) +
             ", holds " + to_text(Bytes{now - more}) + " and needs " +
             to_text(Bytes{more}) + " more",
         "Raise devices.memory, or take more stages or more microbatches.");
  }
  std::int64_t peak = peak_.load();
  while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
  }
}

// A block of the pool's, or a new one. What the pool keeps must not add up to
// more than the device needs: blocks of sizes that no longer occur would.
void* DeviceMemory::take_block(std::size_t size) {
  if (void* block = pool_.take(size)) {
    return block;
  }
  const std::int64_t held = live().value + pool_.kept().value;
  const std::int64_t peak = peak_.load();
  if (held > peak + peak / 4 || (budget_.value > 0 && held > budget_.value)) {
    pool_.flush();
  }
  try {
    return c10::alloc_cpu(size);
  } catch (const std::exception&) {
    pool_.flush();
    return c10::alloc_cpu(size);
  }
}

void* DeviceMemory::allocate(std::size_t bytes,
                             const std::shared_ptr<DeviceMemory>& memory) {
  const std::size_t total = bytes + sizeof(BlockHeader);
  if (!memory) {
    return new (c10::alloc_cpu(total)) BlockHeader{bytes, 0, nullptr} + 1;
  }
  memory->claim(bytes);
  const bool is_pooled = total >= BlockPool::kSmallest;
  const std::size_t pooled = is_pooled ? BlockPool::block_size(total) : 0;
  try {
    void* const block =
        is_pooled ? memory->take_block(pooled) : c10::alloc_cpu(total);
    return new (block) BlockHeader{bytes, pooled, memory} + 1;
  } catch (...) {
    memory->live_.fetch_sub(static_cast<std::int64_t>(bytes));
    throw;
  }
}

void DeviceMemory::free(void* data) {
  if (data == nullptr) {
    return;
  }
  BlockHeader* header = static_cast<BlockHeader*>(data) - 1;
  const std::size_t pooled = header->block;
  const std::shared_ptr<DeviceMemory> memory = std::move(header->memory);
  if (memory) {
    memory->live_.fetch_sub(static_cast<std::int64_t>(header->bytes));
  }
  header->~BlockHeader();
  if (pooled > 0) {
    memory->pool_.give(header, pooled);
  } else {
    c10::free_cpu(header);
  }
}

void DeviceMemory::hand_over(void* data,
                             const std::shared_ptr<DeviceMemory>& receiver) {
  BlockHeader* header = static_cast<BlockHeader*>(data) - 1;
  if (!header->memory || header->memory->is_of_all_ ||
      header->memory == receiver) {
    return;
  }
  receiver->claim(header->bytes);
  header->memory->live_.fetch_sub(static_cast<std::int64_t>(header->bytes));
  header->memory = receiver;
}

bool is_held_once(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.storage().nbytes() == tensor.nbytes();
}

void take_over(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !current_memory()) {
    return;
  }
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get() != nullptr && data.get_deleter() == &DeviceMemory::free) {
    DeviceMemory::hand_over(data.get(), current_memory());
  }
}

at::Tensor received(at::Tensor tensor) {
  constexpr std::size_t kMostCopied = std::size_t{256} << 10U;
  const bool is_copied = tensor.defined() && tensor.has_storage() &&
                         tensor.is_contiguous() &&
                         tensor.storage_offset() == 0 &&
                         tensor.nbytes() <= kMostCopied && is_held_once(tensor);
  if (!is_copied) {
    take_over(tensor);
    return tensor;
  }
  at::Tensor copy = tensor.detach().clone();
  copy.set_requires_grad(tensor.requires_grad());
  return copy;
}

MemoryScope::MemoryScope(std::shared_ptr<DeviceMemory> memory)
    : before_(std::exchange(current_memory(), std::move(memory))) {
  install_allocator();
}

MemoryScope::~MemoryScope() {
  current_memory() = std::move(before_);
}

std::shared_ptr<DeviceMemory> MemoryScope::current() {
  return current_memory();
}

}  // namespace cleave
