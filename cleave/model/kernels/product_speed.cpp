#include "cleave/model/kernels/product_speed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "cleave/model/kernels/products.h"

namespace cleave {
namespace {

constexpr int kRuns = 10;
constexpr double kEnoughSeconds = 0.2;  // where bf16 is emulated
constexpr std::int64_t kProductRows = 256;
constexpr std::int64_t kWidth = 512;

// Of the fastest run: neighbours can only slow it.
double speed_in(at::ScalarType type) {
  using Clock = std::chrono::steady_clock;
  const at::Tensor input = at::ones({kProductRows, kWidth}, type);
  const at::Tensor weight = at::ones({kWidth, kWidth}, type);
  linear_product(input, weight, {});  // prepares kernels
  double fastest = 0;
  double total = 0;
  for (int run = 0; run < kRuns && total < kEnoughSeconds; ++run) {
    const Clock::time_point start = Clock::now();
    linear_product(input, weight, {});
    const std::chrono::duration<double> spent = Clock::now() - start;
    constexpr double kOperations = 2.0 * kProductRows * kWidth * kWidth;
    fastest = std::max(fastest, kOperations / spent.count());
    total += spent.count();
  }
  return fastest;
}

}  // namespace

std::string bf16_warning(const ProductSpeed& speed) {
  return speed.bf16 < speed.fp32
             ? "bf16 is slower than fp32 on this processor (" +
                   gigaflops(speed.bf16) + " against " + gigaflops(speed.fp32) +
                   " GFLOP/s): train.precision = \"fp32\" is faster."
             : "";
}

std::string gigaflops(double speed) {
  return std::to_string(std::llround(speed / 1e9));
}

ProductSpeed measure_products(const Device& device) {
  ProductSpeed speed;
  // On a thread of its own, so that the caller keeps its cores.
  std::thread([&] {
    bind_to(device);
    speed = {speed_in(at::kFloat), speed_in(at::kBFloat16)};
  }).join();
  return speed;
}

}  // namespace cleave
