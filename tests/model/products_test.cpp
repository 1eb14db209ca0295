#include "cleave/model/kernels/products.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

namespace cleave {
namespace {

// Sums of a few hundred products of numbers about 1.
constexpr double kTolerance = 2e-4;

void expect_near(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_EQ(found.scalar_type(), expected.scalar_type());
  EXPECT_TRUE(found.is_contiguous());
  EXPECT_LT((found - expected).abs().max().item<double>(), kTolerance);
}

// Too small for another library, just large enough, and odd.
const std::vector<std::array<std::int64_t, 3>>& sizes() {
  static const std::vector<std::array<std::int64_t, 3>> all{
      {3, 4, 5}, {128, 128, 128}, {257, 130, 191}, {1, 2048, 1030}};
  return all;
}

TEST(Products, are_those_of_libtorch) {
  torch::manual_seed(1);
  for (const auto& [rows, in, out] : sizes()) {
    const at::Tensor input = torch::randn({rows, in});
    const at::Tensor weight = torch::randn({out, in});
    const at::Tensor bias = torch::randn({out});
    const at::Tensor gradient = torch::randn({rows, out});
    expect_near(linear_product(input, weight, bias),
                at::linear(input, weight, bias));
    expect_near(linear_product(input, weight, {}), at::linear(input, weight));
    expect_near(product(gradient, weight), gradient.mm(weight));
    expect_near(weight_product(gradient, input), gradient.t().mm(input));
  }
}

// Of a large vocabulary, which goes in parts.
TEST(Products, of_many_columns_are_those_of_libtorch) {
  const at::Tensor gradient = torch::randn({40, 5000});
  const at::Tensor input = torch::randn({40, 100});
  expect_near(weight_product(gradient, input), gradient.t().mm(input));
  const at::Tensor rows = gradient.narrow(1, 5, 4900);
  expect_near(weight_product(rows, input), rows.t().mm(input));
}

TEST(Products, take_rows_of_rows_and_memory_with_gaps) {
  const at::Tensor wide = torch::randn({4, 64, 256});
  const at::Tensor input = wide.slice(2, 0, 128);
  const at::Tensor weight = torch::randn({256, 128});
  expect_near(linear_product(input, weight, {}), at::linear(input, weight));
  expect_near(weight_product(wide[0].t(), weight), wide[0].mm(weight));
  const at::Tensor turned = wide.transpose(0, 1);
  const at::Tensor other = torch::randn({96, 256});
  expect_near(linear_product(turned, other, {}), at::linear(turned, other));
}

// A second call, memory elsewhere, and other numbers beside must not change a
// bit: microbatches and stages rely on it.
TEST(Products, have_the_same_bits_every_time) {
  torch::manual_seed(2);
  for (const auto& [rows, in, out] : sizes()) {
    const at::Tensor input = torch::randn({rows, in});
    const at::Tensor weight = torch::randn({out, in});
    const at::Tensor gradient = torch::randn({rows, out});
    EXPECT_TRUE(torch::equal(linear_product(input, weight, {}),
                             linear_product(input.clone(), weight, {})));
    EXPECT_TRUE(torch::equal(product(gradient, weight),
                             product(gradient.clone(), weight.clone())));
    EXPECT_TRUE(torch::equal(weight_product(gradient, input),
                             weight_product(gradient, input.clone())));
  }
}

}  // namespace
}  // namespace cleave
