#include "cleave/comm/mpi/envelope.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <random>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr Tag kEnvelopeTag{Channel::gradients, 5, {7}};

std::string sealed(const Message& message) {
  bool inside = false;
  const std::vector<char> bytes = seal(kEnvelopeTag, message, inside);
  return {bytes.begin(), bytes.end()};
}

TEST(Envelope, carries_few_numbers_inside) {
  const at::Tensor numbers = torch::randn({3, 4}).to(at::kBFloat16);
  const Envelope read = unseal(sealed({numbers, at::Tensor()}));
  EXPECT_EQ(read.tag, kEnvelopeTag);
  EXPECT_TRUE(read.filled);
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_TRUE(torch::equal(read.tensors[0], numbers));
  EXPECT_FALSE(read.tensors[1].defined());
}

TEST(Envelope, carries_only_the_shapes_of_many) {
  const Envelope read = unseal(sealed({torch::ones({100, 200}, at::kDouble)}));
  EXPECT_FALSE(read.filled);
  EXPECT_EQ(read.tensors.at(0).sizes(), at::IntArrayRef({100, 200}));
  EXPECT_EQ(read.tensors.at(0).scalar_type(), at::kDouble);
}

TEST(Envelope, keeps_how_numbers_lie_in_memory) {
  const at::Tensor lying = torch::arange(12.0).view({3, 4}).t();
  const at::Tensor row = torch::arange(6.0).as_strided({1, 6}, {77, 1});
  const Envelope read = unseal(sealed({lying, row}));
  EXPECT_EQ(read.tensors[0].strides(), lying.strides());
  EXPECT_TRUE(torch::equal(read.tensors[0], lying));
  EXPECT_EQ(read.tensors[1].strides(), row.strides());
  EXPECT_TRUE(torch::equal(read.tensors[1], row));
  const at::Tensor behind = torch::arange(9.0).slice(0, 3);
  const auto place = [](const at::Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64;
  };
  EXPECT_EQ(place(unseal(sealed({behind})).tensors[0]), place(behind));
}

TEST(Envelope, numbers_with_gaps_or_twice_are_put_in_one_piece) {
  const at::Tensor gaps = torch::arange(12.0).view({3, 4}).slice(1, 0, 2);
  const at::Tensor twice = torch::arange(3.0).expand({2, 3});
  const Envelope read =
      unseal(sealed({in_one_piece(gaps), in_one_piece(twice)}));
  EXPECT_TRUE(torch::equal(read.tensors[0], gaps));
  EXPECT_TRUE(torch::equal(read.tensors[1], twice));
}

TEST(Envelope, of_a_message_without_tensors_is_read_back) {
  EXPECT_TRUE(unseal(sealed({})).tensors.empty());
}

TEST(Envelope, that_was_cut_or_lengthened_is_refused) {
  const std::string whole = sealed({torch::arange(10)});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(unseal(whole.substr(0, length)), Error) << length;
  }
  EXPECT_THROW(unseal(whole + "x"), Error);
}

// Whatever comes, it is read or refused: it neither crashes nor asks for
// endless memory without an exception.
TEST(Envelope, any_bytes_are_read_or_refused) {
  std::mt19937 random(3);
  const std::string whole = sealed({torch::arange(4), torch::ones({2, 2})});
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (int change = 0; change < 3; ++change) {
      bytes[random() % 120] = static_cast<char>(random() % 4);
    }
    try {
      unseal(bytes);
    } catch (const std::exception&) {
    }
  }
}

}  // namespace
}  // namespace cleave
