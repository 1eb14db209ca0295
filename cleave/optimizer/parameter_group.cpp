#include <string_view>

#include "cleave/optimizer/optimizer.h"

namespace cleave {
namespace {

bool fits_pattern(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) {
    return name.empty();
  }
  if (pattern.front() == '*') {
    return fits_pattern(pattern.substr(1), name) ||
           (!name.empty() && fits_pattern(pattern, name.substr(1)));
  }
  return !name.empty() &&
         (pattern.front() == '?' || pattern.front() == name.front()) &&
         fits_pattern(pattern.substr(1), name.substr(1));
}

}  // namespace

bool fits(const ParameterGroup& group, const Parameter& parameter) {
  return (!group.most_dimensions ||
          std::ssize(parameter.whole) <= *group.most_dimensions) &&
         fits_pattern(group.pattern, parameter.name);
}

}  // namespace cleave
