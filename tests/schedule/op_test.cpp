#include "cleave/schedule/op.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace cleave {
namespace {

TEST(Ops, each_is_found_in_the_table) {
  for (const OpTraits& each : op_table()) {
    EXPECT_EQ(traits(each.op).op, each.op) << each.letters;
  }
}

TEST(Ops, have_letters_and_words_of_their_own) {
  std::set<std::string_view> letters;
  std::set<std::string_view> words;
  for (const OpTraits& each : op_table()) {
    EXPECT_FALSE(each.words.empty()) << each.letters;
    EXPECT_TRUE(letters.insert(each.letters).second) << each.letters;
    EXPECT_TRUE(words.insert(each.words).second) << each.words;
  }
}

// The text form has digits in front of them and behind them.
TEST(Ops, have_letters_that_are_capitals) {
  for (const OpTraits& each : op_table()) {
    EXPECT_FALSE(each.letters.empty());
    for (const char letter : each.letters) {
      EXPECT_TRUE(letter >= 'A' && letter <= 'Z') << each.letters;
    }
  }
}

TEST(Ops, the_ends_of_a_message_name_each_other) {
  int ends = 0;
  for (const OpTraits& each : op_table()) {
    if (!each.other_end) {
      continue;
    }
    ++ends;
    const OpTraits& other = traits(*each.other_end);
    EXPECT_NE(other.op, each.op);
    EXPECT_EQ(other.other_end, each.op) << each.letters;
    EXPECT_EQ(other.index, each.index) << each.letters;
    EXPECT_EQ(each.lane, Lane::network) << each.letters;
    EXPECT_NE(each.letters[0], other.letters[0]);
    EXPECT_EQ(each.letters.substr(1), other.letters.substr(1));
  }
  EXPECT_EQ(ends, 10);
}

TEST(Ops, generators_write_what_computes_on_a_microbatch) {
  for (const OpTraits& each : op_table()) {
    EXPECT_EQ(is_pass(each.op),
              is_compute(each.op) && each.index == IndexOf::microbatch)
        << each.letters;
  }
}

}  // namespace
}  // namespace cleave
