#include "cleave/report/paint.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace cleave {
namespace {

constexpr Colour kWhite{255, 255, 255};

// Of what has one colour, whatever its stage.
constexpr Paint plain(Colour colour) {
  return {colour, colour, kWhite};
}

// Blue, amber and brown differ for every kind of colour blindness, and so do
// their lightnesses without any colour; updates are as light as amber, stand
// behind all else of their stage, and have their letter.
constexpr Paint kForward{{61, 116, 166}, {38, 78, 120}, kWhite};
constexpr Paint kBackward{{240, 194, 116}, {217, 160, 62}, {58, 42, 8}};
constexpr Paint kWeight{{148, 69, 31}, {105, 46, 18}, kWhite};
constexpr Paint kUpdate{{150, 206, 180}, {110, 170, 145}, {16, 48, 36}};

// Thin marks on light and on dark ground.
constexpr Paint kReceive = plain({194, 71, 127});
constexpr Paint kSend = plain({91, 107, 122});
constexpr Paint kSum = plain({124, 84, 200});
constexpr Paint kGather = plain({40, 150, 160});

}  // namespace

std::string to_text(Colour colour) {
  std::array<char, 32> text{};
  std::snprintf(text.data(),
                text.size(),
                "#%02x%02x%02x",
                colour.red & 0xff,
                colour.green & 0xff,
                colour.blue & 0xff);
  return text.data();
}

const Paint& paint_of(Op op) {
  switch (op) {
    case Op::forward:
      return kForward;
    case Op::backward:
      return kBackward;
    case Op::weight:
      return kWeight;
    case Op::reduce:
    case Op::reduce_norm:
      return kSum;
    case Op::gather_weights:
    case Op::share_buffers:
      return kGather;
    default:
      return is_compute(op) ? kUpdate : is_receive(op) ? kReceive : kSend;
  }
}

Colour shade(const Paint& paint, int place, int count) {
  const double share = count > 1 ? static_cast<double>(place) / (count - 1) : 0;
  const auto between = [&](int from, int to) {
    return static_cast<int>(std::lround(from + share * (to - from)));
  };
  return {between(paint.first.red, paint.last.red),
          between(paint.first.green, paint.last.green),
          between(paint.first.blue, paint.last.blue)};
}

}  // namespace cleave
