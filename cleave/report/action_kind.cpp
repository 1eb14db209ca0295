#include "cleave/report/action_kind.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace cleave {

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

const ActionKind& kind_of(std::string_view letters) {
  const auto* const known =
      std::ranges::find(kActionKinds, letters, &ActionKind::letters);
  return known == kActionKinds.end() ? kOtherKind : *known;
}

const ActionKind& kind_of(const Action& action) {
  const std::string text = to_text(action);
  return kind_of(
      std::string_view(text).substr(0, text.find_first_of("0123456789")));
}

Colour shade(const ActionKind& kind, int place, int count) {
  const double share = count > 1 ? static_cast<double>(place) / (count - 1) : 0;
  const auto between = [&](int from, int to) {
    return static_cast<int>(std::lround(from + share * (to - from)));
  };
  return {between(kind.first.red, kind.last.red),
          between(kind.first.green, kind.last.green),
          between(kind.first.blue, kind.last.blue)};
}

}  // namespace cleave
