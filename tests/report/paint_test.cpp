#include "cleave/report/paint.h"

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

TEST(Paint, every_op_has_one) {
  for (const OpTraits& kind : op_table()) {
    EXPECT_NE(paint_of(kind.op), Paint{}) << kind.letters;
  }
}

TEST(Paint, ops_that_share_a_paint_are_of_one_kind) {
  EXPECT_EQ(paint_of(Op::norm), paint_of(Op::update));
  EXPECT_EQ(paint_of(Op::reduce_norm), paint_of(Op::reduce));
  EXPECT_EQ(paint_of(Op::share_buffers), paint_of(Op::gather_weights));
  for (const OpTraits& kind : op_table()) {
    if (kind.other_end) {
      EXPECT_EQ(
          paint_of(kind.op),
          paint_of(is_receive(kind.op) ? Op::receive_values : Op::send_values))
          << kind.letters;
    }
  }
  const std::array kKinds{Op::forward,
                          Op::backward,
                          Op::weight,
                          Op::update,
                          Op::receive_values,
                          Op::send_values,
                          Op::reduce,
                          Op::gather_weights};
  for (const Op a : kKinds) {
    for (const Op b : kKinds) {
      EXPECT_EQ(a == b, paint_of(a) == paint_of(b))
          << traits(a).letters << " and " << traits(b).letters;
    }
  }
}

TEST(Paint, the_label_is_readable_on_every_shade) {
  for (const OpTraits& kind : op_table()) {
    if (is_compute(kind.op)) {
      const Paint& paint = paint_of(kind.op);
      for (const int place : {0, 1, 2}) {
        EXPECT_GE(contrast(paint.text, shade(paint, place, 3)), 3.5)
            << kind.letters;
      }
    }
  }
}

TEST(Paint, thin_marks_are_seen_on_light_and_on_dark_ground) {
  for (const OpTraits& kind : op_table()) {
    if (!is_compute(kind.op)) {
      const Colour mark = paint_of(kind.op).first;
      EXPECT_GE(contrast(mark, {255, 255, 255}), 3) << kind.letters;
      EXPECT_GE(contrast(mark, {0x14, 0x19, 0x1f}), 3) << kind.letters;
    }
  }
}

TEST(Paint, kinds_of_computation_differ_without_colour) {
  const double forward = luminance(paint_of(Op::forward).first);
  const double backward = luminance(paint_of(Op::backward).first);
  const double weights = luminance(paint_of(Op::weight).first);
  EXPECT_GT(backward, 2 * forward);
  EXPECT_GT(forward, 1.4 * weights);
}

TEST(Paint, shades_go_from_the_first_to_the_last) {
  const Paint& paint = paint_of(Op::forward);
  EXPECT_EQ(shade(paint, 0, 1), paint.first);
  EXPECT_EQ(shade(paint, 0, 4), paint.first);
  EXPECT_EQ(shade(paint, 3, 4), paint.last);
  EXPECT_LT(luminance(shade(paint, 2, 4)), luminance(shade(paint, 1, 4)));
  EXPECT_EQ(to_text(Colour{61, 5, 166}), "#3d05a6");
}

}  // namespace
}  // namespace cleave
