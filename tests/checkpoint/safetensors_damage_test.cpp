#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "cleave/checkpoint/safetensors.h"
#include "cleave/error.h"
#include "tests/temporary_folder.h"

namespace cleave {
namespace {

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(length >> (8 * i)));
  }
  return bytes;
}

std::string file(const std::string& json, std::size_t data_size) {
  return length_bytes(json.size()) + json + std::string(data_size, '\x01');
}

// A file with the single entry "x".
std::string with_entry(const std::string& fields, std::size_t data_size) {
  return file("{\"x\":{" + fields + "}}", data_size);
}

std::string with_shape(const std::string& shape, std::size_t data_size) {
  return with_entry("\"dtype\":\"U8\",\"shape\":" + shape +
                        ",\"data_offsets\":[0," + std::to_string(data_size) +
                        "]",
                    data_size);
}

std::string with_offsets(const std::string& offsets, std::size_t data_size) {
  return with_entry(R"("dtype":"U8","shape":[4],"data_offsets":)" + offsets,
                    data_size);
}

std::string with_name(const std::string& name) {
  return file(
      "{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      1);
}

// "a" and "b", two bytes each, at these places.
std::string two(const std::string& a, const std::string& b, std::size_t size) {
  const std::string start = R"({"dtype":"U8","shape":[2],"data_offsets":)";
  return file("{\"a\":" + start + a + "},\"b\":" + start + b + "}}", size);
}

constexpr const char* kGood =
    R"("dtype":"U8","shape":[4],"data_offsets":[0,4])";

struct Damage {
  const char* name;
  std::string bytes;
  const char* problem;
};

std::vector<Damage> damages_of_the_frame() {
  const std::string good = with_entry(kGood, 4);
  return {
      {"empty file", "", "has 0 bytes, too few"},
      {"seven bytes", good.substr(0, 7), "has 7 bytes, too few"},
      {"no header", length_bytes(0), "does not begin with '{'"},
      {"header cut", good.substr(0, 30), "the file ends before that"},
      {"data cut",
       good.substr(0, good.size() - 1),
       "take 4 bytes but the file"
       " has 3"},
      {"bytes appended", good + "!", "take 4 bytes but the file has 5"},
      {"another file appended", good + good, "take 4 bytes but"},
      {"header too long", length_bytes(100'000'001) + good, "more than the"},
      {"header endless", length_bytes(~0ULL) + good, "18446744073709551615"},
      {"header longer than file", length_bytes(999) + "{}", "ends before that"},
      {"length in big endian", std::string(7, '\0') + "\x02{}", "more than"},
  };
}

std::vector<Damage> damages_of_the_json() {
  const std::string deep = "{\"x\":" + std::string(100'000, '[');
  return {
      {"leading space", file(" {}", 0), "does not begin with '{'"},
      {"byte-order mark", file("\xef\xbb\xbf{}", 0), "does not begin with"},
      {"array", file("[]", 0), "does not begin with '{'"},
      {"only half", file("{", 0), "no valid JSON"},
      {"junk behind", file("{}x", 0), "no valid JSON"},
      {"two objects", file("{}{}", 0), "no valid JSON"},
      {"zero byte behind", file(std::string("{}\0", 3), 0), "a zero byte"},
      {"comment", file("{/**/}", 0), "no valid JSON"},
      {"comma too many", file("{\"__metadata__\":{},}", 0), "no valid JSON"},
      {"bad UTF-8", with_name("\xc3\x28"), "no valid JSON"},
      {"lone surrogate", with_name("\\ud800"), "no valid JSON"},
      {"deep nesting", file(deep, 0), "not an object"},
      {"number for a tensor", file("{\"x\":1}", 0), "not an object"},
      {"null for a tensor", file("{\"x\":null}", 0), "not an object"},
      {"number in metadata",
       file(R"({"__metadata__":{"a":1}})", 0),
       "not a string"},
      {"object in metadata",
       file(R"({"__metadata__":{"a":{}}})", 0),
       "an object under \"a\", where none belongs"},
      {"null for metadata",
       file(R"({"__metadata__":null})", 0),
       "the metadata are not an object"},
      {"key twice in metadata",
       file(R"({"__metadata__":{"a":"","a":""}})", 0),
       "holds \"a\" twice"},
      {"array for a tensor", file("{\"x\":[]}", 0), "not an object"},
      {"metadata twice",
       file(R"({"__metadata__":{},"__metadata__":{}})", 0),
       "\"__metadata__\" twice"},
  };
}

std::vector<Damage> damages_of_an_entry() {
  return {
      {"no dtype",
       with_entry(R"("shape":[4],"data_offsets":[0,4])", 4),
       "has no \"dtype\""},
      {"no shape",
       with_entry(R"("dtype":"U8","data_offsets":[0,4])", 4),
       "has no \"shape\""},
      {"no offsets",
       with_entry(R"("dtype":"U8","shape":[4])", 4),
       "has no \"data_offsets\""},
      {"unknown field",
       with_entry(std::string(kGood) + ",\"y\":1", 4),
       "unknown field \"y\""},
      {"field twice",
       with_entry(std::string(kGood) + ",\"dtype\":\"I8\"", 4),
       "holds \"dtype\" twice"},
      {"unknown dtype",
       with_entry(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])", 4),
       "unknown dtype \"F33\""},
      {"dtype of libtorch",
       with_entry(R"("dtype":"float32","shape":[1],"data_offsets":[0,4])", 4),
       "unknown dtype \"float32\""},
      {"dtype we lack",
       with_entry(R"("dtype":"F4","shape":[8],"data_offsets":[0,4])", 4),
       "F4, which is not supported"},
      {"number for dtype",
       with_entry(R"("dtype":4,"shape":[4],"data_offsets":[0,4])", 4),
       "a number in its \"dtype\""},
      {"bool that is two",
       with_entry(R"("dtype":"BOOL","shape":[1],"data_offsets":[0,1])", 0) +
           "\x02",
       "other than 0 and 1"},
  };
}

std::vector<Damage> damages_of_a_name() {
  return {
      {"empty name", with_name(""), "a name of 0 bytes"},
      {"long name", with_name(std::string(1025, 'n')), "a name of 1025 bytes"},
      {"newline in name", with_name("a\\nb"), "control characters"},
      {"zero in name", with_name("a\\u0000b"), "control characters"},
      {"delete in name", with_name("a\x7f"), "control characters"},
      {"name twice",
       file(std::string("{\"x\":{") + kGood + "},\"x\":{" + kGood + "}}", 4),
       "holds \"x\" twice"},
  };
}

std::vector<Damage> damages_of_numbers() {
  std::string ones;
  for (int i = 0; i < 64; ++i) {
    ones += "1,";
  }
  return {
      {"negative size", with_shape("[-4]", 4), "no unsigned integer"},
      {"size minus zero", with_shape("[-0]", 0), "no unsigned integer"},
      {"size with a point", with_shape("[4.0]", 4), "no unsigned integer"},
      {"size with exponent", with_shape("[4e0]", 4), "no unsigned integer"},
      {"size beyond 64 bits",
       with_shape("[18446744073709551616]", 4),
       "no unsigned integer of at most 48 bits"},
      {"size beyond 48 bits",
       with_shape("[281474976710656]", 4),
       "no unsigned integer of at most 48 bits"},
      {"size as text", with_shape("[\"4\"]", 4), "a string in its \"shape\""},
      {"size beyond all floats", with_shape("[1e999]", 4), "beyond all limits"},
      {"size true", with_shape("[true]", 4), "a boolean in its \"shape\""},
      {"nested shape", with_shape("[[4]]", 4), "an array under \"shape\""},
      {"shape is a number", with_shape("4", 4), "a number in its \"shape\""},
      {"too many dimensions",
       with_shape("[" + ones + "1]", 1),
       "more than 64 dimensions"},
      {"product beyond 64 bits",
       with_shape("[281474976710655,281474976710655]", 4),
       "too large a shape"},
      {"product wraps to four",
       with_shape("[4294967296,4294967297,4]", 4),
       "too large a shape"},
      {"huge beside zero",
       with_shape("[0,281474976710655,281474976710655]", 0),
       "too large a shape"},
  };
}

std::vector<Damage> damages_of_places() {
  return {
      {"one offset", with_offsets("[4]", 4), "1 data_offsets, not 2"},
      {"three offsets", with_offsets("[0,4,4]", 4), "3 data_offsets, not 2"},
      {"end before begin", with_offsets("[4,0]", 4), "ends before it begins"},
      {"too short for the shape",
       with_offsets("[0,3]", 3),
       "has 3 bytes but its shape and dtype need 4"},
      {"too long for the shape",
       with_offsets("[0,5]", 5),
       "has 5 bytes but its shape and dtype need 4"},
      {"beyond the file", with_offsets("[96,100]", 4), "begins at byte 96"},
      {"offset near 2^64",
       with_offsets("[18446744073709551612,0]", 4),
       "no unsigned integer of at most 48 bits"},
      {"hole at the start", two("[1,3]", "[3,5]", 5), "begins at byte 1"},
      {"hole between", two("[0,2]", "[3,5]", 5), "begins at byte 3"},
      {"hole at the end", two("[0,2]", "[2,4]", 5), "the file has 5"},
      {"overlap", two("[0,2]", "[1,3]", 3), "begins at byte 1"},
      {"the same bytes twice", two("[0,2]", "[0,2]", 2), "begins at byte 0"},
  };
}

void expect_refused(const std::vector<Damage>& damages) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.safetensors";
  for (const Damage& damage : damages) {
    put(path, damage.bytes);
    try {
      load_safetensors(path);
      ADD_FAILURE() << damage.name << " was read";
    } catch (const Error& error) {
      const std::string& problem = error.problem();
      EXPECT_NE(problem.find(path.string()), std::string::npos)
          << damage.name << ": " << problem;
      EXPECT_NE(problem.find(damage.problem), std::string::npos)
          << damage.name << ": " << problem;
      EXPECT_FALSE(error.fix().empty()) << damage.name;
    }
  }
}

TEST(SafetensorsDamage, of_the_frame_is_refused_with_the_file_and_the_reason) {
  expect_refused(damages_of_the_frame());
}

TEST(SafetensorsDamage, of_the_json_is_refused_with_the_file_and_the_reason) {
  expect_refused(damages_of_the_json());
}

TEST(SafetensorsDamage, of_an_entry_is_refused_with_the_file_and_the_reason) {
  expect_refused(damages_of_an_entry());
}

TEST(SafetensorsDamage, of_a_name_is_refused_with_the_file_and_the_reason) {
  expect_refused(damages_of_a_name());
}

TEST(SafetensorsDamage, of_numbers_is_refused_with_the_file_and_the_reason) {
  expect_refused(damages_of_numbers());
}

TEST(SafetensorsDamage, of_places_is_refused_with_the_file_and_the_reason) {
  expect_refused(damages_of_places());
}

TEST(Safetensors, the_undamaged_file_of_these_tests_is_read) {
  const TemporaryFolder folder;
  put(folder / "file", with_entry(kGood, 4));
  EXPECT_EQ(load_safetensors(folder / "file").tensors.size(), 1U);
}

TEST(Safetensors, every_truncation_is_refused) {
  const TemporaryFolder folder;
  const std::string good = with_entry(kGood, 4);
  for (std::size_t size = 0; size < good.size(); ++size) {
    put(folder / "file", good.substr(0, size));
    EXPECT_THROW(load_safetensors(folder / "file"), Error) << size;
  }
}

TEST(Safetensors, a_strange_name_cannot_garble_the_message) {
  const TemporaryFolder folder;
  put(folder / "file", with_name("\\u001b[2J" + std::string(2000, 'x')));
  try {
    load_safetensors(folder / "file");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_LT(text.size(), 500U);
  }
}

TEST(Safetensors, what_is_no_file_is_refused_at_once) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder / "folder");
  for (const char* name : {"missing", "folder", "pipe"}) {
    try {
      load_safetensors(folder / name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(error.problem().find(name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace cleave
