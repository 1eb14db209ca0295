#include "cleave/comm/memory.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

namespace cleave {
namespace {

TEST(MemoryMeter, it_counts_what_this_thread_allocates_while_in_scope) {
  const auto meter = std::make_shared<MemoryMeter>();
  const at::Tensor before = torch::empty({1000});
  at::Tensor kept;
  {
    const MeteredScope scope(meter);
    kept = torch::empty({1000});
    const at::Tensor dropped = torch::empty({500});
    EXPECT_EQ(meter->live(), Bytes{6000});
  }
  const at::Tensor after = torch::empty({1000});
  EXPECT_EQ(meter->live(), Bytes{4000});
  EXPECT_EQ(meter->peak(), Bytes{6000});
  meter->reset_peak();
  EXPECT_EQ(meter->peak(), Bytes{4000});
}

TEST(MemoryMeter, another_thread_may_free_and_views_cost_nothing) {
  const auto meter = std::make_shared<MemoryMeter>();
  at::Tensor tensor;
  {
    const MeteredScope scope(meter);
    tensor = torch::empty({1000});
    const at::Tensor view = tensor.view({10, 100});
    EXPECT_EQ(meter->live(), Bytes{4000});
  }
  std::thread([&] { tensor = at::Tensor(); }).join();
  EXPECT_EQ(meter->live(), Bytes{0});
}

TEST(MemoryMeter, scopes_nest) {
  const auto outer = std::make_shared<MemoryMeter>();
  const auto inner = std::make_shared<MemoryMeter>();
  const MeteredScope first(outer);
  {
    const MeteredScope second(inner);
    const at::Tensor counted = torch::empty({10});
    EXPECT_EQ(inner->live(), Bytes{40});
  }
  const at::Tensor counted = torch::empty({20});
  EXPECT_EQ(outer->live(), Bytes{80});
}

TEST(MemoryMeter, a_tensor_may_outlive_its_device) {
  at::Tensor tensor;
  {
    const auto meter = std::make_shared<MemoryMeter>();
    const MeteredScope scope(meter);
    tensor = torch::ones({100});
  }
  EXPECT_EQ(tensor.sum().item<float>(), 100);
  tensor = at::Tensor();
}

TEST(MemoryMeter, memory_stays_aligned_as_libtorch_expects) {
  const auto meter = std::make_shared<MemoryMeter>();
  const MeteredScope scope(meter);
  for (const std::int64_t size : {1, 3, 100, 5000}) {
    const at::Tensor tensor = torch::empty({size});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0u);
  }
}

}  // namespace
}  // namespace cleave
