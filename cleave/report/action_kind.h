#pragma once

#include <array>
#include <string>
#include <string_view>

#include "cleave/schedule/schedule.h"

namespace cleave {

struct Colour {
  int red = 0;
  int green = 0;
  int blue = 0;

  bool operator==(const Colour&) const = default;
};

// "#3d74a6".
std::string to_text(Colour colour);

// How a kind of action is called and painted, wherever it is shown. The stages
// of one device go from `first` to `last`; `text` is readable on both.
struct ActionKind {
  std::string_view letters;  // as in the text of an action: "F", "SB"
  std::string_view words;
  Colour first;
  Colour last;
  Colour text;
};

// Blue, amber and brown differ for every kind of colour blindness, and so do
// their lightnesses without any colour; updates are as light as amber, stand
// behind all else of their stage, and have their letter.
inline constexpr std::array kActionKinds{
    ActionKind{"F", "forward", {61, 116, 166}, {38, 78, 120}, {255, 255, 255}},
    ActionKind{"B", "backward", {240, 194, 116}, {217, 160, 62}, {58, 42, 8}},
    ActionKind{
        "W", "weight gradients", {148, 69, 31}, {105, 46, 18}, {255, 255, 255}},
    ActionKind{"U", "update", {150, 206, 180}, {110, 170, 145}, {16, 48, 36}},
    ActionKind{"RF", "receive forward", {194, 71, 127}, {194, 71, 127}, {}},
    ActionKind{"SF", "send forward", {91, 107, 122}, {91, 107, 122}, {}},
    ActionKind{"RB", "receive backward", {194, 71, 127}, {194, 71, 127}, {}},
    ActionKind{"SB", "send backward", {91, 107, 122}, {91, 107, 122}, {}},
};

// Of an action without a row above.
inline constexpr ActionKind kOtherKind{
    "?", "other work", {104, 114, 125}, {78, 86, 95}, {255, 255, 255}};

// The row of these letters, or kOtherKind.
const ActionKind& kind_of(std::string_view letters);
const ActionKind& kind_of(const Action& action);

// Between `first` and `last` of the kind: that of stage number `place` of the
// `count` that a device has.
Colour shade(const ActionKind& kind, int place, int count);

}  // namespace cleave
