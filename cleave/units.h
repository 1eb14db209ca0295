#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave {

struct Bytes {
  std::int64_t value = 0;

  auto operator<=>(const Bytes&) const = default;
  Bytes& operator+=(Bytes other) {
    value += other.value;
    return *this;
  }
};

inline Bytes operator+(Bytes a, Bytes b) {
  return {a.value + b.value};
}
inline Bytes operator-(Bytes a, Bytes b) {
  return {a.value - b.value};
}
inline Bytes operator*(std::int64_t n, Bytes b) {
  return {n * b.value};
}

struct Seconds {
  double value = 0;

  auto operator<=>(const Seconds&) const = default;
  Seconds& operator+=(Seconds other) {
    value += other.value;
    return *this;
  }
};

inline Seconds operator+(Seconds a, Seconds b) {
  return {a.value + b.value};
}
inline Seconds operator-(Seconds a, Seconds b) {
  return {a.value - b.value};
}
inline Seconds operator*(double n, Seconds s) {
  return {n * s.value};
}
inline Seconds operator/(Seconds s, double n) {
  return {s.value / n};
}
inline double operator/(Seconds a, Seconds b) {
  return a.value / b.value;
}

// Three significant digits and the fitting unit: "1.50 MiB", "840 B".
std::string to_text(Bytes bytes);

// Three significant digits and the fitting unit: "12.5 ms", "1.50 s".
std::string to_text(Seconds seconds);

// Reads "2GiB", "512 MiB", "1.5e9", "100 MB". Throws Error on anything else.
Bytes parse_bytes(std::string_view text);

}  // namespace cleave
