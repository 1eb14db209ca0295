#include "cleave/device/processor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace cleave {
namespace {

constexpr std::uint32_t kTiles = 1U << 24;

TEST(Tiles, are_usable_where_a_palette_describes_them) {
  EXPECT_EQ(
      tiles_from({.last_leaf = 0x20, .features = kTiles, .last_palette = 1}),
      Tiles::usable);
}

TEST(Tiles, are_none_where_they_are_not_advertised) {
  EXPECT_EQ(tiles_from({.last_leaf = 0x20, .features = 0, .last_palette = 1}),
            Tiles::none);
}

TEST(Tiles, are_broken_where_the_palette_is_hidden) {
  EXPECT_EQ(
      tiles_from({.last_leaf = 0x1C, .features = kTiles, .last_palette = 0}),
      Tiles::broken);
  EXPECT_EQ(
      tiles_from({.last_leaf = 0x20, .features = kTiles, .last_palette = 0}),
      Tiles::broken);
}

// Gives back what the variable was before.
class Kept {
 public:
  explicit Kept(const char* name) : name_(name) {
    if (const char* const value = std::getenv(name)) {
      value_ = value;
    }
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    value_ ? setenv(name_, value_->c_str(), /*replace=*/1) : unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> value_;
};

TEST(Tiles, lower_the_instruction_set_only_where_they_are_broken) {
  constexpr const char* kVariable = "ONEDNN_MAX_CPU_ISA";
  const Kept kept(kVariable);
  unsetenv(kVariable);
  avoid_tiles(Tiles::none);
  avoid_tiles(Tiles::usable);
  EXPECT_EQ(std::getenv(kVariable), nullptr);
  avoid_tiles(Tiles::broken);
  EXPECT_STREQ(std::getenv(kVariable), "AVX512_CORE_FP16");
  setenv(kVariable, "AVX2", /*replace=*/1);  // by the user
  avoid_tiles(Tiles::broken);
  EXPECT_STREQ(std::getenv(kVariable), "AVX2");
}

}  // namespace
}  // namespace cleave
