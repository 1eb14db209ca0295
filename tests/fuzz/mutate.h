#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// One call with arbitrary bytes: what libFuzzer calls, and what the tests call
// with seeded mutations of valid files. Anything but a clean return is a bug.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace cleave {

using ByteString = std::vector<std::uint8_t>;

// `valid` with one to four small damages. The engine's numbers, unlike those
// of std:: distributions, are the same everywhere, so a failure can be
// repeated.
inline ByteString mutated(ByteString bytes, std::mt19937_64& draws) {
  const auto below = [&](std::size_t bound) {
    return static_cast<std::size_t>(draws() % bound);
  };
  for (std::size_t left = 1 + below(4); left > 0; --left) {
    const std::size_t at = below(bytes.size() + 1);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto length = static_cast<std::ptrdiff_t>(
        below(std::min<std::size_t>(bytes.size() - at, 16) + 1));
    switch (below(6)) {
      case 0:  // flip a bit
        if (at < bytes.size()) {
          bytes[at] ^= static_cast<std::uint8_t>(1U << below(8));
        }
        break;
      case 1:  // another byte
        if (at < bytes.size()) {
          bytes[at] = static_cast<std::uint8_t>(draws());
        }
        break;
      case 2:  // cut off
        bytes.erase(place, bytes.end());
        break;
      case 3:  // take some out
        bytes.erase(place, place + length);
        break;
      case 4: {  // put some in twice
        const ByteString copy(place, place + length);
        bytes.insert(place, copy.begin(), copy.end());
        break;
      }
      default:  // put a character in that means something to a parser
        bytes.insert(place,
                     static_cast<std::uint8_t>(
                         "{}[]\",:-.09eE\\ \0\x7f\xff"[below(19)]));
        break;
    }
  }
  return bytes;
}

}  // namespace cleave
