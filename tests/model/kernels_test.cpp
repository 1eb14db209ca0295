// The fast operations against torch's own.
#include "cleave/model/kernels/kernels.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/model/kernels/attention.h"
#include "cleave/model/kernels/gelu.h"
#include "cleave/model/kernels/numbers.h"

namespace cleave {
namespace {

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor exact = expected.to(at::kDouble);
  return ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

// How far results may lie from those in fp64, relative.
double tolerance(at::ScalarType type) {
  return type == at::kFloat ? 1e-6 : 8e-3;
}

class Kernels : public testing::TestWithParam<at::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(Types,
                         Kernels,
                         testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& test) {
                           return std::string(toString(test.param));
                         });

TEST_P(Kernels, gelu_is_torch_s) {
  const at::Tensor x =
      (torch::randn({3, 1001}) * 3).to(GetParam()).requires_grad_();
  const at::Tensor exact = x.detach().to(at::kDouble).requires_grad_();
  const at::Tensor gradient = torch::randn({3, 1001}).to(GetParam());
  const at::Tensor y = tanh_gelu(x);
  const at::Tensor expected = at::gelu(exact, "tanh");
  y.backward(gradient);
  expected.backward(gradient.to(at::kDouble));
  EXPECT_EQ(y.scalar_type(), GetParam());
  EXPECT_LT(error_of(y.detach(), expected.detach()), tolerance(GetParam()));
  EXPECT_LT(error_of(x.grad(), exact.grad()), tolerance(GetParam()));
}

TEST(Relu, has_the_bits_of_torch_s) {
  at::Tensor x = torch::randn({1003});
  x[0] = -0.0;
  x[1] = NAN;
  x[2] = INFINITY;
  x[3] = -INFINITY;
  x[1002] = -0.0;
  const at::Tensor y = torch::empty_like(x);
  kernels::relu(numbers<float>(x), numbers<float>(y), x.numel());
  EXPECT_TRUE(torch::equal(y.view(at::kInt), x.relu().view(at::kInt)));
  const at::Tensor gradient = torch::randn({1003});
  const at::Tensor found = torch::empty_like(x);
  kernels::relu_backward(numbers<float>(y),
                         numbers<float>(gradient),
                         numbers<float>(found),
                         x.numel());
  EXPECT_TRUE(
      torch::equal(found.view(at::kInt),
                   at::threshold_backward(gradient, y, 0).view(at::kInt)));
}

TEST(SumOfRows, has_the_bits_of_torch_s) {
  at::set_num_threads(1);
  for (const std::int64_t rows : {1, 2, 15, 16, 17, 32, 255, 256, 257, 4500}) {
    for (const std::int64_t columns : {64, 128, 512}) {
      const at::Tensor values = torch::randn({rows, columns});
      const at::Tensor sums = torch::empty({columns});
      kernels::sum_rows(
          numbers<float>(values), rows, columns, numbers<float>(sums));
      EXPECT_TRUE(torch::equal(sums, values.sum(0))) << rows << "x" << columns;
    }
  }
}

TEST(Transpose, puts_every_number_in_its_place) {
  for (const std::int64_t rows : {1, 15, 16, 33, 512}) {
    for (const std::int64_t columns : {1, 16, 50, 64, 100, 144}) {
      const at::Tensor wide = torch::randn({rows, columns + 3});
      const at::Tensor matrix = wide.narrow(1, 2, columns);
      const at::Tensor turned = torch::empty({columns, rows});
      kernels::transpose(matrix.const_data_ptr<float>(),
                         wide.size(1),
                         rows,
                         columns,
                         turned.mutable_data_ptr<float>());
      EXPECT_TRUE(turned.equal(matrix.t())) << rows << " x " << columns;
    }
  }
}

TEST_P(Kernels, gelu_of_extremes_is_finite_and_of_no_number_none) {
  const at::Tensor x =
      torch::tensor({-1e30, -100.0, -9.0, 0.0, 9.0, 100.0, 1e30})
          .to(GetParam());
  const at::Tensor y = tanh_gelu(x);
  EXPECT_TRUE(y.isfinite().all().item<bool>()) << y;
  EXPECT_LT(y[1].abs().item<double>(), 1e-20);
  EXPECT_EQ(y[5].item<double>(), 100.0);
  EXPECT_TRUE(tanh_gelu(torch::full({3}, NAN).to(GetParam()))
                  .isnan()
                  .all()
                  .item<bool>());
}

TEST(Kernels, gelu_reads_tensors_that_do_not_lie_in_order) {
  const at::Tensor x = torch::randn({7, 5}).t();
  EXPECT_LT(error_of(tanh_gelu(x), at::gelu(x, "tanh")), 1e-6);
}

TEST(Kernels, gelu_leaves_other_types_to_torch) {
  const at::Tensor x = torch::randn({7}, at::kDouble);
  EXPECT_TRUE(torch::equal(tanh_gelu(x), at::gelu(x, "tanh")));
}

struct Shape {
  std::int64_t samples;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t d;
};

void expect_attention_like_torch(const Shape& shape, at::ScalarType type) {
  const auto [samples, length, heads, d] = shape;
  torch::manual_seed(1);
  const at::Tensor qkv =
      torch::randn({samples, length, 3 * heads * d}).to(type).requires_grad_();
  const at::Tensor exact = qkv.detach().to(at::kDouble).requires_grad_();
  const at::Tensor gradient =
      torch::randn({samples, length, heads * d}).to(type);
  const at::Tensor found = causal_attention(qkv, heads);
  const at::Tensor parts =
      exact.view({samples, length, 3, heads, d}).permute({2, 0, 3, 1, 4});
  const at::Tensor expected = at::scaled_dot_product_attention(
                                  parts[0], parts[1], parts[2], {}, 0.0, true)
                                  .transpose(1, 2)
                                  .reshape({samples, length, heads * d});
  found.backward(gradient);
  expected.backward(gradient.to(at::kDouble));
  EXPECT_EQ(found.scalar_type(), type);
  EXPECT_LT(error_of(found.detach(), expected.detach()), tolerance(type))
      << "length " << length;
  EXPECT_LT(error_of(qkv.grad(), exact.grad()), 2 * tolerance(type))
      << "length " << length;
}

// Lengths around the size of a block, and many heads.
TEST_P(Kernels, attention_is_torch_s) {
  for (const Shape& shape : {Shape{2, 1, 1, 4},
                             Shape{1, 2, 3, 8},
                             Shape{2, 127, 2, 16},
                             Shape{2, 128, 2, 16},
                             Shape{1, 129, 3, 16},
                             Shape{1, 300, 9, 8},
                             Shape{1, 520, 2, 32}}) {
    expect_attention_like_torch(shape, GetParam());
  }
}

TEST(Kernels, attention_does_not_depend_on_the_threads) {
  const at::Tensor qkv = torch::randn({2, 70, 3 * 4 * 8});
  at::set_num_threads(1);
  const at::Tensor alone = causal_attention(qkv, 4);
  at::set_num_threads(2);
  EXPECT_TRUE(torch::equal(causal_attention(qkv, 4), alone));
  at::set_num_threads(1);
}

TEST(Kernels, bf16_is_rounded_as_torch_rounds) {
  const at::Tensor values = torch::cat(
      {torch::randn({10000}) * torch::exp(torch::randn({10000}) * 20),
       torch::tensor({0.0F, -0.0F, INFINITY, -INFINITY, 3.4e38F, 1e-40F})});
  const at::Tensor expected = values.to(at::kBFloat16);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    Bf16 found;
    store(values[i].item<float>(), found);
    ASSERT_EQ(found.bits, numbers<Bf16>(expected)[i].bits) << values[i];
  }
  Bf16 none;
  store(NAN, none);
  EXPECT_TRUE(std::isnan(to_float(none)));
}

}  // namespace
}  // namespace cleave
