#include "cleave/report/text.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace cleave {
namespace {

// UTF-8: every byte of a code point but its first looks like 10xxxxxx.
bool begins_code_point(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

// `format` takes the number of digits and the number.
std::string printed(const char* format, double number, int digits) {
  if (!std::isfinite(number)) {
    return std::string(non_finite_name(number));
  }
  std::array<char, 400> text{};  // the largest double has 309 digits
  std::snprintf(text.data(), text.size(), format, digits, number);
  return text.data();
}

}  // namespace

int columns(std::string_view text) {
  int count = 0;
  for (const char byte : text) {
    count += begins_code_point(byte) ? 1 : 0;
  }
  return count;
}

std::string_view first_columns(std::string_view text, int width) {
  int count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    count += begins_code_point(text[i]) ? 1 : 0;
    if (count > width) {
      return text.substr(0, i);
    }
  }
  return text;
}

std::string significant(double number, int digits) {
  return printed("%.*g", number, digits);
}

std::string decimal(double number, int digits) {
  return printed("%.*f", number, digits);
}

std::string_view non_finite_name(double number) {
  if (std::isnan(number)) {
    return "nan";
  }
  if (std::isinf(number)) {
    return number > 0 ? "inf" : "-inf";
  }
  return "";
}

std::string percent(double share) {
  return decimal(100 * share, 0) + "%";
}

}  // namespace cleave
