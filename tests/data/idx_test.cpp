#include "cleave/data/idx.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cleave/error.h"
#include "tests/data/gzip.h"

namespace cleave {
namespace {

using ByteString = std::vector<std::uint8_t>;

// Two by three bytes.
ByteString valid() {
  return {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 15};
}

ByteString with(ByteString bytes, std::size_t at, std::uint8_t value) {
  bytes.at(at) = value;
  return bytes;
}

ByteString first(ByteString bytes, std::size_t count) {
  bytes.resize(count);
  return bytes;
}

ByteString joined(ByteString bytes, const ByteString& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

std::string problem_of(const ByteString& bytes) {
  try {
    parse_idx(bytes, "some.idx");
  } catch (const Error& error) {
    return error.problem();
  }
  return "none";
}

TEST(Idx, plain_and_packed_files_hold_the_same) {
  for (const ByteString& bytes : {valid(), gzipped(valid())}) {
    const IdxArray array = parse_idx(bytes, "some.idx");
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(array.values, (ByteString{10, 11, 12, 13, 14, 15}));
  }
}

TEST(Idx, a_well_packed_array_is_read) {
  ByteString zeros{0, 0, 8, 1, 0, 16, 0, 0};  // 2^20 values in about a KiB
  zeros.resize(zeros.size() + (1 << 20));
  const ByteString packed = gzipped(zeros);
  ASSERT_LT(packed.size(), 1100U);
  EXPECT_EQ(parse_idx(packed, "zeros").values.size(), 1U << 20);
}

TEST(Idx, sizes_are_big_endian) {
  ByteString bytes{0, 0, 8, 1, 0, 0, 1, 2};
  bytes.resize(8 + 258);
  EXPECT_EQ(parse_idx(bytes, "long").shape[0], 258);
}

struct Damage {
  const char* name;
  ByteString bytes;
  const char* problem;
};

// 60 values are claimed within a good gzip stream.
ByteString lying() {
  return gzipped(with(valid(), 7, 20));
}

std::vector<Damage> damages() {
  const ByteString plain = valid();
  const ByteString packed = gzipped(plain);
  const std::size_t crc = packed.size() - 8;
  return {
      {"empty", {}, "ends within its header"},
      {"three bytes", first(plain, 3), "ends within its header"},
      {"half a size", first(plain, 6), "ends within its header"},
      {"wrong magic", with(plain, 0, 1), "no IDX file"},
      {"text", {'h', 'e', 'l', 'l', 'o'}, "no IDX file"},
      {"floats", with(plain, 2, 0x0d), "IDX type 13"},
      {"type unknown", with(plain, 2, 0), "IDX type 0"},
      {"no dimensions", with(plain, 3, 0), "0 dimensions"},
      {"too many dimensions", with(plain, 3, 200), "200 dimensions"},
      {"a size of zero", with(plain, 7, 0), "size 0"},
      {"a value missing", first(plain, 17), "claims 6 values but"},
      {"a value more", joined(plain, {16}), "holds more"},
      {"4 GiB claimed", with(with(plain, 4, 255), 8, 255), "more than 1 GiB"},
      {"1 GiB claimed", with(plain, 4, 16), "too short"},
      {"1 GiB claimed, packed", gzipped(with(plain, 4, 16)), "too short"},
      {"packed values missing", lying(), "claims 60 values but holds 6"},
      {"packed values more", gzipped(joined(plain, {16})), "holds more"},
      {"packed header cut", gzipped(first(plain, 9)), "within its header"},
      {"packed wrong magic", gzipped(with(plain, 1, 7)), "no IDX file"},
      {"packed twice", gzipped(packed), "no IDX file"},
      {"gzip header only", first(packed, 10), "middle of its gzip stream"},
      {"gzip cut", first(packed, 20), "middle of its gzip stream"},
      {"gzip trailer cut", first(packed, crc + 3), "middle of its gzip"},
      {"gzip checksum", with(packed, crc, packed[crc] ^ 1), "data check"},
      {"gzip length", with(packed, crc + 4, 99), "length check"},
      {"gzip method", with(packed, 2, 3), "compression method"},
      {"gzip block type", with(packed, 10, 0xff), "invalid block type"},
      {"bytes behind gzip", joined(packed, {0}), "behind the end"},
      {"second gzip stream", joined(packed, packed), "behind the end"},
  };
}

TEST(Idx, every_damage_is_refused_by_name_and_reason) {
  for (const Damage& damage : damages()) {
    const std::string problem = problem_of(damage.bytes);
    EXPECT_NE(problem.find(damage.problem), std::string::npos)
        << damage.name << ": " << problem;
    EXPECT_NE(problem.find("some.idx"), std::string::npos)
        << damage.name << ": " << problem;
  }
}

TEST(Idx, every_truncation_is_refused) {
  for (const ByteString& bytes : {valid(), gzipped(valid())}) {
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_NE(problem_of(first(bytes, size)), "none") << size;
    }
  }
}

TEST(Idx, files_are_read_and_missing_ones_named) {
  const std::filesystem::path folder(testing::TempDir());
  const std::filesystem::path file = folder / "cleave_idx_test.idx";
  const ByteString bytes = gzipped(valid());
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(read_idx(file).values.size(), 6U);
  std::filesystem::remove(file);
  for (const std::filesystem::path& bad : {file, folder}) {
    try {
      read_idx(bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_NE(error.problem().find(bad.string()), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace cleave
