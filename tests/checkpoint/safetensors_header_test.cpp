#include "cleave/checkpoint/safetensors_header.h"

#include <gtest/gtest.h>

#include <string>

#include "cleave/error.h"

namespace cleave {
namespace {

SafetensorsHeader parse(const std::string& json, std::uint64_t data_size) {
  return parse_safetensors_header(json, 8 + json.size() + data_size, "some");
}

SafetensorsEntry entry(const std::string& name,
                       const std::string& dtype,
                       const std::vector<std::int64_t>& shape) {
  return {.name = name, .dtype = dtype, .shape = shape};
}

std::string problem_when_written(const SafetensorsHeader& header) {
  try {
    to_file_start(laid_out(header, "some"), "some");
  } catch (const Error& error) {
    return error.problem();
  }
  return "none";
}

TEST(SafetensorsHeader, no_tensors_give_the_published_bytes) {
  const std::string start = to_file_start(laid_out({}, "some"), "some");
  EXPECT_EQ(start, std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_EQ(safetensors_header_length(start, start.size(), "some"), 8U);
  EXPECT_EQ(parse(start.substr(8), 0), SafetensorsHeader{});
}

TEST(SafetensorsHeader, one_tensor_gives_the_published_bytes) {
  const SafetensorsHeader header =
      laid_out({{entry("attn0", "F32", {1, 1, 2, 3})}, {}}, "some");
  const std::string start = to_file_start(header, "some");
  EXPECT_EQ(start.substr(0, 8), std::string("\x48\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(start.substr(8),
            R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],)"
            R"("data_offsets":[0,24]}}       )");
}

TEST(SafetensorsHeader, metadata_come_first) {
  const SafetensorsHeader header = laid_out(
      {{entry("x", "U8", {3})}, {{"b", "2\n"}, {"a", "\"1\""}}}, "some");
  const std::string start = to_file_start(header, "some");
  EXPECT_EQ(start.substr(8),
            R"({"__metadata__":{"a":"\"1\"","b":"2\n"},)"
            R"("x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}    )");
  EXPECT_EQ(parse(start.substr(8), 3), header);
}

TEST(SafetensorsHeader, dtypes_go_by_alignment_then_names_by_letters) {
  const SafetensorsHeader header = laid_out({{entry("b", "F32", {2}),
                                              entry("flag", "BOOL", {3}),
                                              entry("half", "BF16", {1}),
                                              entry("a", "F32", {}),
                                              entry("long", "I64", {1})},
                                             {}},
                                            "some");
  std::string order;
  for (const SafetensorsEntry& e : header.entries) {
    order += e.name + ":" + std::to_string(e.begin) + "-" +
             std::to_string(e.end) + " ";
  }
  EXPECT_EQ(order, "long:0-8 a:8-12 b:12-20 half:20-22 flag:22-25 ");
}

TEST(SafetensorsHeader, entries_are_read_in_the_order_of_their_data) {
  const SafetensorsHeader header =
      parse(R"({"z":{"data_offsets":[0,2],"shape":[2],"dtype":"I8"},)"
            R"("a":{"dtype":"I8","shape":[1],"data_offsets":[2,3]},)"
            R"("e":{"dtype":"I8","shape":[0],"data_offsets":[2,2]}})",
            3);
  ASSERT_EQ(header.entries.size(), 3U);
  EXPECT_EQ(header.entries[0].name, "z");
  EXPECT_EQ(header.entries[1].name, "e");
  EXPECT_EQ(header.entries[2].name, "a");
}

TEST(SafetensorsHeader, a_type_of_four_bits_must_fill_whole_bytes) {
  EXPECT_EQ(parse(R"({"x":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})", 3)
                .entries[0]
                .end,
            3U);
  EXPECT_THROW(
      parse(R"({"x":{"dtype":"F4","shape":[5],"data_offsets":[0,3]}})", 3),
      Error);
}

TEST(SafetensorsHeader, names_may_be_in_any_language) {
  const SafetensorsHeader header =
      laid_out({{entry("слой.0/重み \"x\"", "U8", {1})}, {}}, "some");
  EXPECT_EQ(parse(to_file_start(header, "some").substr(8), 1), header);
}

TEST(SafetensorsHeader, a_length_beyond_the_limit_is_refused) {
  const std::string just_too_long("\x01\xe1\xf5\x05\0\0\0\0", 8);  // 10^8 + 1
  EXPECT_THROW(safetensors_header_length(just_too_long, 1ULL << 40, "some"),
               Error);
  const std::string longest("\x00\xe1\xf5\x05\0\0\0\0", 8);
  EXPECT_EQ(safetensors_header_length(longest, 1ULL << 40, "some"),
            100'000'000U);
}

TEST(SafetensorsHeader, what_no_reader_would_take_is_not_written) {
  const auto problem = [](const std::string& name) {
    return problem_when_written({{entry(name, "U8", {1})}, {}});
  };
  EXPECT_EQ(problem("fine"), "none");
  EXPECT_NE(problem("").find("a name of 0 bytes"), std::string::npos);
  EXPECT_NE(problem(std::string(1025, 'x')).find("1025"), std::string::npos);
  EXPECT_NE(problem("a\nb").find("control"), std::string::npos);
  EXPECT_NE(problem("\xff").find("UTF-8"), std::string::npos);
  EXPECT_NE(problem("__metadata__").find("keeps"), std::string::npos);
  EXPECT_NE(problem_when_written(
                {{entry("x", "U8", {1}), entry("x", "F32", {1})}, {}})
                .find("\"x\" is there twice"),
            std::string::npos);
  EXPECT_NE(problem_when_written(
                {{entry("x", "U8", std::vector<std::int64_t>(65, 1))}, {}})
                .find("dimensions"),
            std::string::npos);
  EXPECT_NE(problem_when_written({{}, {{"key", "\xff"}}}).find("UTF-8"),
            std::string::npos);
}

}  // namespace
}  // namespace cleave
