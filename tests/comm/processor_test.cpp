#include "cleave/comm/processor.h"

#include <gtest/gtest.h>

#include "cleave/comm/product_speed.h"

namespace cleave {
namespace {

constexpr std::uint32_t kTiles = 1U << 24;

TEST(Tiles, are_usable_where_a_palette_describes_them) {
  EXPECT_EQ(
      judge_tiles({.last_leaf = 0x20, .features = kTiles, .last_palette = 1}),
      Tiles::usable);
}

TEST(Tiles, are_none_where_they_are_not_advertised) {
  EXPECT_EQ(judge_tiles({.last_leaf = 0x20, .features = 0, .last_palette = 1}),
            Tiles::none);
}

TEST(Tiles, are_broken_where_the_palette_is_hidden) {
  EXPECT_EQ(
      judge_tiles({.last_leaf = 0x1C, .features = kTiles, .last_palette = 0}),
      Tiles::broken);
  EXPECT_EQ(
      judge_tiles({.last_leaf = 0x20, .features = kTiles, .last_palette = 0}),
      Tiles::broken);
}

TEST(Tiles, a_bf16_product_does_not_kill_the_process) {
  const Devices devices = local_devices("cpu:1", {.threads = 1});
  const ProductSpeed speed = measure_products(devices.front());
  EXPECT_GT(speed.fp32, 0);
  EXPECT_GT(speed.bf16, 0);
}

}  // namespace
}  // namespace cleave
