#include "cleave/report/action_kind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace cleave {
namespace {

// How light it looks, from 0 to 1, by the WCAG's formula.
double luminance(Colour colour) {
  const auto linear = [](int channel) {
    const double share = channel / 255.0;
    return share <= 0.04045 ? share / 12.92
                            : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) +
         0.0722 * linear(colour.blue);
}

double contrast(Colour a, Colour b) {
  const auto [low, high] = std::minmax({luminance(a), luminance(b)});
  return (high + 0.05) / (low + 0.05);
}

TEST(ActionKind, every_action_that_is_known_has_words_of_its_own) {
  for (const Action& action : parse_row("F0 B1 RF2 SF3 RB4 SB15")) {
    const ActionKind& kind = kind_of(action);
    EXPECT_NE(kind.letters, kOtherKind.letters) << to_text(action);
    EXPECT_TRUE(to_text(action).starts_with(kind.letters)) << to_text(action);
  }
  EXPECT_EQ(kind_of("F").words, "forward");
  EXPECT_EQ(kind_of("W").words, "weight gradients");
  EXPECT_EQ(kind_of(Action{Op::send_backward}).words, "send backward");
}

TEST(ActionKind, an_action_without_a_row_is_painted_all_the_same) {
  EXPECT_EQ(kind_of("Z").words, "other work");
  EXPECT_EQ(kind_of("").words, "other work");
}

TEST(ActionKind, the_number_is_readable_on_every_shade) {
  for (const char* letters : {"F", "B", "W", "Z"}) {
    const ActionKind& kind = kind_of(letters);
    for (const int place : {0, 1, 2}) {
      EXPECT_GE(contrast(kind.text, shade(kind, place, 3)), 3.5) << letters;
    }
  }
}

TEST(ActionKind, kinds_of_computation_differ_without_colour) {
  const double forward = luminance(kind_of("F").first);
  const double backward = luminance(kind_of("B").first);
  const double weights = luminance(kind_of("W").first);
  EXPECT_GT(backward, 2 * forward);
  EXPECT_GT(forward, 1.4 * weights);
}

TEST(ActionKind, shades_go_from_the_first_to_the_last) {
  const ActionKind& kind = kind_of("F");
  EXPECT_EQ(shade(kind, 0, 1), kind.first);
  EXPECT_EQ(shade(kind, 0, 4), kind.first);
  EXPECT_EQ(shade(kind, 3, 4), kind.last);
  EXPECT_LT(luminance(shade(kind, 2, 4)), luminance(shade(kind, 1, 4)));
  EXPECT_EQ(to_text(Colour{61, 5, 166}), "#3d05a6");
}

}  // namespace
}  // namespace cleave
