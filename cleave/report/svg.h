#pragma once

#include <array>
#include <string>
#include <string_view>

#include "cleave/report/text.h"

// The few pieces of SVG that our images are made of.
namespace cleave::svg {

// Safe between tags and between double quotes.
inline std::string escaped(std::string_view text) {
  constexpr std::string_view kSpecial = "&<>\"";
  constexpr std::array kEntities{"&amp;", "&lt;", "&gt;", "&quot;"};
  std::string safe;
  for (const char letter : text) {
    const std::size_t special = kSpecial.find(letter);
    if (special == std::string_view::npos) {
      safe += letter;
    } else {
      safe += kEntities[special];
    }
  }
  return safe;
}

inline std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escaped(value) + "\"";
}

inline std::string attribute(std::string_view name, double value) {
  return attribute(name, decimal(value, 2));
}

// The class that style rules go by; nothing where there is none.
inline std::string css_class(std::string_view name) {
  return name.empty() ? "" : attribute("class", name);
}

struct Box {
  double x;
  double y;
  double width;
  double height;
};

inline std::string rect(Box box,
                        std::string_view fill,
                        double radius = 0,
                        std::string_view css = "") {
  return "<rect" + css_class(css) + attribute("x", box.x) +
         attribute("y", box.y) + attribute("width", box.width) +
         attribute("height", box.height) +
         (radius > 0 ? attribute("rx", radius) : "") + attribute("fill", fill) +
         "/>";
}

// From (x, y) down.
inline std::string tick(double x,
                        double y,
                        double size,
                        std::string_view stroke,
                        std::string_view css = "") {
  return "<path" + css_class(css) + attribute("stroke", stroke) +
         attribute("d",
                   "M" + decimal(x, 2) + " " + decimal(y, 2) + "v" +
                       decimal(size, 2)) +
         "/>";
}

struct TextStyle {
  double size = 12;
  std::string_view fill = "#000000";
  std::string_view anchor = "start";  // or "middle", "end": what x is
  std::string_view css = "";
};

// `y` is the line the letters stand on.
inline std::string text(double x,
                        double y,
                        std::string_view words,
                        TextStyle style) {
  return "<text" + css_class(style.css) + attribute("x", x) +
         attribute("y", y) + attribute("font-size", style.size) +
         attribute("fill", style.fill) +
         attribute("text-anchor", style.anchor) + ">" + escaped(words) +
         "</text>";
}

}  // namespace cleave::svg
