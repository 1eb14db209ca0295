#pragma once

#include <string>
#include <string_view>

// How numbers and columns look, for everything that draws text.
namespace cleave {

// How many columns UTF-8 text takes on a terminal: its code points.
int columns(std::string_view text);

// The beginning of UTF-8 text that takes at most `width` columns.
std::string_view first_columns(std::string_view text, int width);

// `digits` significant digits, as printf's %g: "0.412", "1.2e-05"; or "nan",
// "inf", "-inf".
std::string significant(double number, int digits);

// `digits` digits after the point; or "nan", "inf", "-inf".
std::string decimal(double number, int digits);

// A share as a whole percentage: 0.25 is "25%".
std::string percent(double share);

// "nan", "inf" or "-inf"; empty when the number is finite.
std::string_view non_finite_name(double number);

}  // namespace cleave
