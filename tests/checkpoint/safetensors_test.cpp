#include "cleave/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <thread>
#include <vector>

#include "cleave/checkpoint/safetensors_file.h"
#include "cleave/error.h"
#include "tests/temporary_folder.h"

namespace cleave {
namespace {

// Equal in dtype, shape and every bit; also for types without arithmetic.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) {
    const at::Tensor rows = tensor.contiguous();
    return std::string_view(static_cast<const char*>(rows.data_ptr()),
                            rows.nbytes());
  };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         bytes(a) == bytes(b);
}

const at::Tensor& named(const LoadedTensors& loaded, const std::string& name) {
  for (const auto& [key, tensor] : loaded.tensors) {
    if (key == name) {
      return tensor;
    }
  }
  throw std::out_of_range(name);
}

std::string problem_of_saving(const TensorMap& tensors) {
  const TemporaryFolder folder;
  put(folder / "file", "old");
  try {
    save_safetensors(tensors, folder / "file");
  } catch (const Error& error) {
    EXPECT_EQ(content_of(folder / "file"), "old");
    EXPECT_EQ(folder.count(), 1);
    return error.problem();
  }
  return "none";
}

// Six numbers as the reference implementation writes them.
const std::string& golden() {
  static const std::string bytes =
      std::string("\x48\0\0\0\0\0\0\0", 8) +
      R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}})"
      "       " +
      std::string(
          "\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0"
          "\xa0\x40",
          24);
  return bytes;
}

TEST(Safetensors, files_are_written_as_the_reference_writes_them) {
  const TemporaryFolder folder;
  const at::Tensor attn0 = torch::arange(6, torch::kFloat).view({1, 1, 2, 3});
  save_safetensors({{"attn0", attn0}}, folder / "one", {});
  EXPECT_EQ(content_of(folder / "one"), golden());
  save_safetensors({}, folder / "none", {});
  EXPECT_EQ(content_of(folder / "none"),
            std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(Safetensors, files_of_the_reference_are_read) {
  const TemporaryFolder folder;
  put(folder / "one", golden());
  const LoadedTensors loaded = load_safetensors(folder / "one");
  ASSERT_EQ(loaded.tensors.size(), 1U);
  EXPECT_TRUE(loaded.metadata.empty());
  EXPECT_TRUE(same_bits(named(loaded, "attn0"),
                        torch::arange(6, torch::kFloat).view({1, 1, 2, 3})));
}

TEST(Safetensors, metadata_say_pt_unless_told_otherwise) {
  const TemporaryFolder folder;
  using Metadata = std::map<std::string, std::string>;
  save_safetensors({}, folder / "file");
  EXPECT_EQ(load_safetensors(folder / "file").metadata,
            (Metadata{{"format", "pt"}}));
  const Metadata own{{"format", "pt"}, {"note", "line\nline \"q\" ü"}};
  save_safetensors({}, folder / "file", own);
  EXPECT_EQ(load_safetensors(folder / "file").metadata, own);
}

TEST(Safetensors, every_dtype_comes_back_bit_for_bit) {
  const TemporaryFolder folder;
  TensorMap saved;
  const at::Tensor bits = torch::arange(48, torch::kUInt8);
  for (const auto type : {torch::kUInt8,
                          torch::kInt8,
                          torch::kInt16,
                          torch::kInt32,
                          torch::kInt64,
                          torch::kUInt16,
                          torch::kUInt32,
                          torch::kUInt64,
                          torch::kHalf,
                          torch::kBFloat16,
                          torch::kFloat,
                          torch::kDouble,
                          at::kComplexFloat,
                          at::kFloat8_e5m2,
                          at::kFloat8_e4m3fn,
                          at::kFloat8_e8m0fnu,
                          at::kFloat8_e5m2fnuz,
                          at::kFloat8_e4m3fnuz}) {
    saved.emplace_back(c10::toString(type), bits.view(type).view({2, -1}));
  }
  saved.emplace_back("Bool", bits.remainder(2).to(torch::kBool).view({6, 8}));
  save_safetensors(saved, folder / "file");
  const LoadedTensors loaded = load_safetensors(folder / "file");
  ASSERT_EQ(loaded.tensors.size(), 19U);
  for (const auto& [name, tensor] : saved) {
    EXPECT_TRUE(same_bits(named(loaded, name), tensor)) << name;
  }
}

TEST(Safetensors, scalars_empty_tensors_and_odd_numbers_come_back) {
  const TemporaryFolder folder;
  const TensorMap saved{
      {"scalar", torch::tensor(2.5)},
      {"empty", torch::empty({0})},
      {"empty in the middle", torch::empty({3, 0, 2}, torch::kInt64)},
      {"not finite", torch::tensor({NAN, INFINITY, -INFINITY, -0.F})},
  };
  save_safetensors(saved, folder / "file");
  const LoadedTensors loaded = load_safetensors(folder / "file");
  ASSERT_EQ(loaded.tensors.size(), 4U);
  for (const auto& [name, tensor] : saved) {
    EXPECT_TRUE(same_bits(named(loaded, name), tensor)) << name;
  }
}

TEST(Safetensors, views_are_written_by_their_values) {
  const TemporaryFolder folder;
  const at::Tensor base = torch::arange(24, torch::kFloat).view({2, 3, 4});
  const at::Tensor numbers = torch::complex(base, base + 1);
  const TensorMap saved{
      {"transposed", base.transpose(0, 2)},
      {"every second", base.slice(2, 0, 4, 2)},
      {"expanded", torch::ones({1}).expand({5})},
      {"channels last",
       torch::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
      {"conjugate", numbers.conj()},
      {"negative bit", torch::imag(numbers.conj())},
      {"with gradient", torch::rand({3}).requires_grad_()},
  };
  save_safetensors(saved, folder / "file");
  const LoadedTensors loaded = load_safetensors(folder / "file");
  for (const auto& [name, tensor] : saved) {
    EXPECT_TRUE(torch::equal(named(loaded, name), tensor)) << name;
    EXPECT_TRUE(named(loaded, name).is_contiguous()) << name;
    EXPECT_FALSE(named(loaded, name).requires_grad()) << name;
  }
}

TEST(Safetensors, what_was_loaded_and_saved_again_is_the_same_file) {
  const TemporaryFolder folder;
  save_safetensors({{"w", torch::rand({3, 3})},
                    {"b", torch::rand({3})},
                    {"n", torch::tensor(7, torch::kInt64)}},
                   folder / "first");
  const LoadedTensors loaded = load_safetensors(folder / "first");
  save_safetensors(loaded.tensors, folder / "second", loaded.metadata);
  EXPECT_EQ(content_of(folder / "first"), content_of(folder / "second"));
}

TEST(Safetensors, single_tensors_can_be_read_by_many_threads) {
  const TemporaryFolder folder;
  TensorMap saved;
  for (int i = 0; i < 8; ++i) {
    saved.emplace_back(std::to_string(i), torch::full({1000}, i));
  }
  save_safetensors(saved, folder / "file");
  const SafetensorsFile file(folder / "file");
  const std::vector<SafetensorsEntry>& entries = file.header().entries;
  std::vector<at::Tensor> loaded(entries.size());
  {
    std::vector<std::jthread> readers;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      readers.emplace_back([&, i] { loaded[i] = file.read(entries[i]); });
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_TRUE(same_bits(loaded[i], saved[i].second)) << entries[i].name;
  }
}

TEST(Safetensors, a_file_cut_while_open_is_an_error_not_a_signal) {
  const TemporaryFolder folder;
  save_safetensors({{"x", torch::rand({1000})}}, folder / "file");
  const SafetensorsFile file(folder / "file");
  std::filesystem::resize_file(folder / "file", 100);
  EXPECT_THROW(file.read(file.header().entries[0]), Error);
}

TEST(Safetensors, tensors_the_format_cannot_hold_are_refused) {
  const at::Tensor x = torch::rand({2, 2});
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(problem_of_saving({{"x", x}, {"x", x}}), "twice"));
  EXPECT_TRUE(contains(problem_of_saving({{"x", at::Tensor()}}), "no values"));
  EXPECT_TRUE(contains(problem_of_saving({{"x", torch::empty({2}, at::kMeta)}}),
                       "no values"));
  EXPECT_TRUE(
      contains(problem_of_saving({{"x", x.to_sparse()}}), "is not dense"));
  EXPECT_TRUE(contains(
      problem_of_saving({{"x", torch::zeros({1}, at::kComplexDouble)}}),
      "the format lacks"));
  EXPECT_TRUE(contains(problem_of_saving({{"__metadata__", x}}), "keeps"));
}

TEST(Safetensors, a_folder_that_is_a_file_is_named) {
  const TemporaryFolder folder;
  put(folder / "file", "old");
  try {
    save_safetensors({}, folder / "file" / "model.safetensors");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.problem().find("model.safetensors"), std::string::npos);
  }
  EXPECT_EQ(content_of(folder / "file"), "old");
}

}  // namespace
}  // namespace cleave
