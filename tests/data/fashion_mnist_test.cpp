#include "cleave/data/fashion_mnist.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cleave/error.h"
#include "tests/data/gzip.h"

namespace cleave {
namespace {

using ByteString = std::vector<std::uint8_t>;
using Indices = std::vector<std::int64_t>;

Indices first(std::int64_t count) {
  Indices indices(count);
  for (std::int64_t i = 0; i < count; ++i) {
    indices[i] = i;
  }
  return indices;
}

TEST(FashionMnist, the_installed_package_is_read_whole) {
  const auto train = load_fashion_mnist(Split::train);
  EXPECT_EQ(train->size(), 60'000);
  EXPECT_EQ(train->classes(), 10);
  const Batch batch = train->get(first(60'000));
  EXPECT_EQ(batch.inputs.sizes(), (Indices{60'000, 1, 28, 28}));
  EXPECT_NEAR(batch.inputs.mean().item<double>(), 0, 1e-3);
  EXPECT_NEAR(batch.inputs.std().item<double>(), 1, 1e-3);
  EXPECT_TRUE(torch::equal(torch::bincount(batch.targets),
                           torch::full({10}, 6000, torch::kInt64)));
  EXPECT_TRUE(torch::equal(batch.targets.narrow(0, 0, 6),
                           torch::tensor({9, 0, 0, 3, 0, 2}, torch::kInt64)));
}

TEST(FashionMnist, the_test_split_is_another) {
  const auto test = load_fashion_mnist(Split::test);
  EXPECT_EQ(test->size(), 10'000);
  EXPECT_TRUE(torch::equal(test->get(first(6)).targets,
                           torch::tensor({9, 2, 1, 1, 6, 1}, torch::kInt64)));
}

// A folder with a test split of three pictures, to be damaged.
class SmallFashionMnist : public testing::Test {
 protected:
  SmallFashionMnist()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
    images_.resize(images_.size() + std::size_t{3} * 28 * 28, 255);
    write();
  }
  ~SmallFashionMnist() override { std::filesystem::remove_all(folder_); }

  void write() const {
    write("t10k-images-idx3-ubyte.gz", images_);
    write("t10k-labels-idx1-ubyte.gz", labels_);
  }

  std::string problem() const {
    try {
      load_fashion_mnist(Split::test, folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  std::filesystem::path folder_;
  ByteString images_{0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28};
  ByteString labels_{0, 0, 8, 1, 0, 0, 0, 3, 9, 0, 4};

 private:
  void write(const char* name, const ByteString& bytes) const {
    const ByteString packed = gzipped(bytes);
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(packed.data()),
               static_cast<std::streamsize>(packed.size()));
  }
};

TEST_F(SmallFashionMnist, pixels_are_normalised_and_labels_kept) {
  const auto data = load_fashion_mnist(Split::test, folder_);
  const Batch batch = data->get(first(3));
  EXPECT_NEAR(batch.inputs.max().item<double>(), (1 - 0.2860) / 0.3530, 1e-6);
  EXPECT_TRUE(
      torch::equal(batch.targets, torch::tensor({9, 0, 4}, torch::kInt64)));
}

TEST_F(SmallFashionMnist, a_limit_takes_the_first_samples) {
  EXPECT_EQ(load_fashion_mnist(Split::test, folder_, 2)->size(), 2);
  EXPECT_EQ(load_fashion_mnist(Split::test, folder_, 9)->size(), 3);
  EXPECT_THROW(load_fashion_mnist(Split::test, folder_, -1), Error);
}

TEST_F(SmallFashionMnist, a_missing_file_names_the_package) {
  std::filesystem::remove(folder_ / "t10k-labels-idx1-ubyte.gz");
  EXPECT_NE(problem().find("t10k-labels-idx1-ubyte.gz"), std::string::npos);
  EXPECT_NE(problem().find("package dataset-fashion-mnist"), std::string::npos);
}

TEST_F(SmallFashionMnist, pictures_of_another_size_are_refused) {
  images_[11] = 14;
  images_[15] = 56;
  write();
  EXPECT_NE(problem().find("3x14x56"), std::string::npos) << problem();
}

TEST_F(SmallFashionMnist, a_label_must_be_a_class) {
  labels_.back() = 10;
  write();
  EXPECT_NE(problem().find("the label 10"), std::string::npos) << problem();
}

TEST_F(SmallFashionMnist, every_picture_needs_a_label) {
  labels_.push_back(1);
  labels_[7] = 4;
  write();
  EXPECT_NE(problem().find("not one label for each of 3"), std::string::npos)
      << problem();
}

TEST_F(SmallFashionMnist, labels_in_the_place_of_pictures_are_refused) {
  images_ = labels_;
  write();
  EXPECT_NE(problem().find("not pictures"), std::string::npos) << problem();
}

}  // namespace
}  // namespace cleave
