#include "cleave/units.h"

#include <gtest/gtest.h>

#include "cleave/error.h"

namespace cleave {
namespace {

TEST(Units, amounts_read_like_a_person_writes_them) {
  EXPECT_EQ(to_text(Bytes{0}), "0 B");
  EXPECT_EQ(to_text(Bytes{840}), "840 B");
  EXPECT_EQ(to_text(Bytes{1536}), "1.50 KiB");
  EXPECT_EQ(to_text(Bytes{3 << 20}), "3.00 MiB");
  EXPECT_EQ(to_text(Bytes{(1LL << 30) - 1}), "1.00 GiB");
  EXPECT_EQ(to_text(Seconds{0}), "0 s");
  EXPECT_EQ(to_text(Seconds{0.0125}), "12.5 ms");
  EXPECT_EQ(to_text(Seconds{1.5}), "1.50 s");
  EXPECT_EQ(to_text(Seconds{600}), "600 s");
}

TEST(Units, memory_is_read_with_binary_and_decimal_units) {
  EXPECT_EQ(parse_bytes("2GiB"), Bytes{2LL << 30});
  EXPECT_EQ(parse_bytes("512 MiB"), Bytes{512LL << 20});
  EXPECT_EQ(parse_bytes("1.5GB"), Bytes{1500000000});
  EXPECT_EQ(parse_bytes("1e3"), Bytes{1000});
  EXPECT_EQ(parse_bytes("7B"), Bytes{7});
}

TEST(Units, what_is_no_amount_of_memory_is_refused) {
  for (const char* text :
       {"", "GiB", "-1GiB", "2 gigs", "1e30", "nan", "2GiBB", "inf"}) {
    EXPECT_THROW(parse_bytes(text), Error) << text;
  }
}

}  // namespace
}  // namespace cleave
