#pragma once

#include <string>

#include "cleave/schedule/op.h"

namespace cleave {

struct Colour {
  int red = 0;
  int green = 0;
  int blue = 0;

  bool operator==(const Colour&) const = default;
};

// "#3d74a6".
std::string to_text(Colour colour);

// How an action is painted, wherever it is shown. The stages of one device go
// from `first` to `last`; `text` is readable on both.
struct Paint {
  Colour first;
  Colour last;
  Colour text;

  bool operator==(const Paint&) const = default;
};

// Norms are painted as updates, sums of norms as those of gradients, and copies
// of buffers as gathered weights.
const Paint& paint_of(Op op);

// Between `first` and `last`: that of stage number `place` of the `count` that
// a device has.
Colour shade(const Paint& paint, int place, int count);

}  // namespace cleave
