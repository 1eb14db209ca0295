#include "cleave/model/wiring.h"

#include <gtest/gtest.h>

#include "cleave/error.h"

namespace cleave {
namespace {

using List = std::vector<Value>;

std::string problem_of(const std::vector<LayerReads>& layers) {
  try {
    const Wiring wiring(layers);
  } catch (const Error& error) {
    return error.problem();
  }
  return "none";
}

TEST(Wiring, a_layer_reads_the_one_before_it) {
  const Wiring wiring({{"a"}, {"b"}, {"c"}});
  EXPECT_EQ(wiring.reads(0), (List{{-1, 0}}));
  EXPECT_EQ(wiring.reads(2), (List{{1, 0}}));
  EXPECT_EQ(wiring.crossing(0), (List{{-1, 0}}));
  EXPECT_EQ(wiring.crossing(2), (List{{1, 0}}));
  EXPECT_EQ(wiring.crossing(3), (List{{2, 0}}));
}

TEST(Wiring, a_skip_crosses_every_cut_between_its_ends) {
  const Wiring wiring({{"a"}, {"b"}, {"c"}, {"d", 1, {"c", "a"}}});
  EXPECT_EQ(wiring.crossing(1), (List{{0, 0}}));
  EXPECT_EQ(wiring.crossing(2), (List{{0, 0}, {1, 0}}));
  EXPECT_EQ(wiring.crossing(3), (List{{0, 0}, {2, 0}}));
  EXPECT_FALSE(wiring.is_dead({0, 0}, 3));
  EXPECT_TRUE(wiring.is_dead({0, 0}, 4));
  EXPECT_TRUE(wiring.is_dead({1, 0}, 3));
}

TEST(Wiring, only_the_outputs_that_are_read_cross) {
  const Wiring wiring({{"a", 3}, {"b", 1, {"a:2"}}, {"c", 2, {"b", "a:0"}}});
  EXPECT_EQ(wiring.crossing(1), (List{{0, 0}, {0, 2}}));
  EXPECT_EQ(wiring.crossing(2), (List{{0, 0}, {1, 0}}));
  EXPECT_EQ(wiring.crossing(3), (List{{2, 0}, {2, 1}}));
}

TEST(Wiring, all_outputs_of_the_layer_before_are_read_by_default) {
  const Wiring wiring({{"a", 2}, {"b"}});
  EXPECT_EQ(wiring.reads(1), (List{{0, 0}, {0, 1}}));
}

TEST(Wiring, the_input_may_be_read_anywhere) {
  const Wiring wiring({{"a"}, {"b"}, {"c", 1, {"input", "b"}}});
  EXPECT_EQ(wiring.crossing(2), (List{{-1, 0}, {1, 0}}));
}

TEST(Wiring, what_cannot_be_read_is_refused) {
  EXPECT_EQ(problem_of({{"a"}, {"b", 1, {"x"}}}),
            "layer 'b' reads 'x', which no layer is called");
  EXPECT_EQ(problem_of({{"a", 1, {"b"}}, {"b"}}),
            "layer 'a' reads 'b', which comes after it");
  EXPECT_EQ(problem_of({{"a", 1, {"a"}}}),
            "layer 'a' reads 'a', which comes after it");
  EXPECT_EQ(problem_of({{"a", 2}, {"b", 1, {"a:2"}}}),
            "layer 'b' reads 'a:2', but 'a' makes 2 tensors");
}

}  // namespace
}  // namespace cleave
