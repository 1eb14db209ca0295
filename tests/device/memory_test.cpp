#include "cleave/device/memory.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <thread>
#include <tuple>
#include <vector>

#include "cleave/error.h"

namespace cleave {
namespace {

TEST(DeviceMemory, it_counts_what_this_thread_allocates_while_in_scope) {
  const auto memory = std::make_shared<DeviceMemory>();
  const at::Tensor before = torch::empty({1000});
  at::Tensor kept;
  {
    const MemoryScope scope(memory);
    kept = torch::empty({1000});
    const at::Tensor dropped = torch::empty({500});
    EXPECT_EQ(memory->live(), Bytes{6000});
  }
  const at::Tensor after = torch::empty({1000});
  EXPECT_EQ(memory->live(), Bytes{4000});
  EXPECT_EQ(memory->peak(), Bytes{6000});
  memory->reset_peak();
  EXPECT_EQ(memory->peak(), Bytes{4000});
}

TEST(DeviceMemory, another_thread_may_free_and_views_cost_nothing) {
  const auto memory = std::make_shared<DeviceMemory>();
  at::Tensor tensor;
  {
    const MemoryScope scope(memory);
    tensor = torch::empty({1000});
    const at::Tensor view = tensor.view({10, 100});
    EXPECT_EQ(memory->live(), Bytes{4000});
  }
  std::thread([&] { tensor = at::Tensor(); }).join();
  EXPECT_EQ(memory->live(), Bytes{0});
}

TEST(DeviceMemory, scopes_nest) {
  const auto outer = std::make_shared<DeviceMemory>();
  const auto inner = std::make_shared<DeviceMemory>();
  const MemoryScope first(outer);
  {
    const MemoryScope second(inner);
    const at::Tensor counted = torch::empty({10});
    EXPECT_EQ(inner->live(), Bytes{40});
  }
  const at::Tensor counted = torch::empty({20});
  EXPECT_EQ(outer->live(), Bytes{80});
}

TEST(DeviceMemory, a_tensor_may_outlive_its_device) {
  at::Tensor tensor;
  {
    const auto memory = std::make_shared<DeviceMemory>();
    const MemoryScope scope(memory);
    tensor = torch::ones({100});
  }
  EXPECT_EQ(tensor.sum().item<float>(), 100);
  tensor = at::Tensor();
}

TEST(DeviceMemory, a_message_belongs_to_who_receives_it) {
  const auto from = std::make_shared<DeviceMemory>("from");
  const auto to = std::make_shared<DeviceMemory>("to", Bytes{5000});
  at::Tensor small;
  at::Tensor large;
  {
    const MemoryScope scope(from);
    small = torch::empty({1000});
    large = torch::empty({2000});
  }
  take_over(small);  // outside of any scope
  EXPECT_EQ(from->live(), Bytes{12000});
  {
    const MemoryScope scope(to);
    take_over(small.view({10, 100}));
    take_over(small);
    take_over(at::Tensor());
    EXPECT_THROW(take_over(large), Error);
  }
  EXPECT_EQ(from->live(), Bytes{8000});
  EXPECT_EQ(to->live(), Bytes{4000});
  small = at::Tensor();
  large = at::Tensor();
  EXPECT_EQ(from->live(), Bytes{});
  EXPECT_EQ(to->live(), Bytes{});
}

// Of a message: small or large, and whether its sender keeps it.
TEST(DeviceMemory, only_a_small_message_that_nobody_else_has_is_copied) {
  for (const auto& [size, is_kept, is_copied] :
       std::vector<std::tuple<std::int64_t, bool, bool>>{
           {100, false, true}, {100, true, false}, {1 << 18, false, false}}) {
    const auto from = std::make_shared<DeviceMemory>("from");
    const auto to = std::make_shared<DeviceMemory>("to");
    at::Tensor message;
    {
      const MemoryScope scope(from);
      message = torch::rand({size}).requires_grad_();
    }
    const at::Tensor kept = is_kept ? message : at::Tensor();
    const at::Tensor expected = message.detach().clone();
    const void* const data = message.data_ptr();
    const MemoryScope scope(to);
    const at::Tensor own = received(std::move(message));
    EXPECT_EQ(own.data_ptr() != data, is_copied);
    EXPECT_TRUE(own.equal(expected));
    EXPECT_TRUE(own.requires_grad());
    EXPECT_EQ(from->live(), Bytes{});
    EXPECT_EQ(to->live(), Bytes{size * 4});
  }
}

TEST(DeviceMemory, what_many_read_is_taken_over_by_nobody) {
  const std::shared_ptr<DeviceMemory> all = DeviceMemory::of_all();
  const auto device = std::make_shared<DeviceMemory>("device");
  at::Tensor batch;
  {
    const MemoryScope scope(all);
    batch = torch::empty({1000});
  }
  {
    const MemoryScope scope(device);
    take_over(batch.narrow(0, 0, 10));
  }
  EXPECT_EQ(device->live(), Bytes{});
  EXPECT_EQ(all->live(), Bytes{4000});
}

TEST(DeviceMemory, memory_stays_aligned_as_libtorch_expects) {
  const auto memory = std::make_shared<DeviceMemory>();
  const MemoryScope scope(memory);
  for (const std::int64_t size : {1, 3, 100, 5000}) {
    const at::Tensor tensor = torch::empty({size});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0u);
  }
}

TEST(DeviceMemory,
     a_freed_block_is_used_again_also_when_another_thread_freed_it) {
  const auto memory = std::make_shared<DeviceMemory>();
  const MemoryScope scope(memory);
  at::Tensor tensor = torch::empty({100'000});
  const void* block = tensor.data_ptr();
  std::thread([&] { tensor = at::Tensor(); }).join();
  EXPECT_GE(memory->kept(), Bytes{400'000});
  tensor = torch::empty({99'000});  // the sizes need not be equal
  EXPECT_EQ(tensor.data_ptr(), block);
  EXPECT_EQ(memory->kept(), Bytes{0});
}

TEST(DeviceMemory, it_does_not_keep_blocks_of_ever_new_sizes) {
  const auto memory = std::make_shared<DeviceMemory>();
  const MemoryScope scope(memory);
  for (std::int64_t size = 10'000; size < 1'000'000; size += 10'000) {
    const at::Tensor tensor = torch::empty({size});
    EXPECT_LE(memory->live() + memory->kept(), Bytes{3 * 4 * size});
  }
}

TEST(DeviceMemory, what_exceeds_the_budget_is_refused_by_name) {
  const auto memory = std::make_shared<DeviceMemory>("cpu:7", Bytes{1'000'000});
  const MemoryScope scope(memory);
  const at::Tensor fits = torch::empty({200'000});
  try {
    const at::Tensor more = torch::empty({100'000});
    FAIL() << "allocated " << more.nbytes();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "device 'cpu:7' has a budget of 977 KiB, holds 781 KiB and needs "
              "391 KiB more");
  }
  EXPECT_EQ(memory->live(), Bytes{800'000});
  EXPECT_EQ(torch::ones({40'000}).sum().item<float>(), 40'000);
}

TEST(BlockPool, sizes_waste_at_most_an_eighth_and_never_shrink) {
  for (std::size_t bytes = BlockPool::kSmallest; bytes < (1U << 26U);
       bytes += 1 + bytes / 37) {
    const std::size_t size = BlockPool::block_size(bytes);
    EXPECT_GE(size, bytes);
    EXPECT_LE(size, bytes + bytes / 8);
    EXPECT_EQ(BlockPool::block_size(size), size);
  }
}

TEST(BlockPool, threads_share_it) {
  BlockPool pool;
  const std::size_t size = BlockPool::block_size(BlockPool::kSmallest);
  for (int i = 0; i < 64; ++i) {
    pool.give(std::aligned_alloc(64, size), size);
  }
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 1000; ++round) {
        void* block = pool.take(size);
        ASSERT_NE(block, nullptr);
        *static_cast<int*>(block) = round;
        pool.give(block, size);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(pool.kept(), Bytes{static_cast<std::int64_t>(64 * size)});
}

}  // namespace
}  // namespace cleave
