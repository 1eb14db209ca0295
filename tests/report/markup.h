#pragma once

#include <string>
#include <vector>

// Just enough of a reader of SVG and HTML to hold drawings against.
namespace cleave {

inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// What stands between every < and its >, in order.
inline std::vector<std::string> tags(const std::string& markup) {
  std::vector<std::string> found;
  for (std::size_t at = markup.find('<'); at != std::string::npos;
       at = markup.find('<', at + 1)) {
    found.push_back(markup.substr(at + 1, markup.find('>', at) - at - 1));
  }
  return found;
}

inline double attribute(const std::string& tag, const std::string& name) {
  const std::string start = " " + name + "=\"";
  return std::stod(tag.substr(tag.find(start) + start.size()));
}

// Empty where every tag that is opened is closed, in the right order, and no
// attribute is left open; else what is wrong.
inline std::string unbalanced(const std::string& markup) {
  std::vector<std::string> open;
  for (const std::string& tag : tags(markup)) {
    if (count(tag, "\"") % 2 != 0) {
      return "open quote in <" + tag + ">";
    }
    if (tag.starts_with("/")) {
      if (open.empty() || "/" + open.back() != tag) {
        return "<" + tag + "> closes " +
               (open.empty() ? "nothing" : "<" + open.back() + ">");
      }
      open.pop_back();
    } else if (!tag.ends_with("/") && !tag.starts_with("!")) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

}  // namespace cleave
