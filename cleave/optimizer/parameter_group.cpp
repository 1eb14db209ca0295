#include <string_view>

#include "cleave/optimizer/optimizer.h"

namespace cleave {
namespace {

// One walk through the name. Where it fails, the last '*' takes one letter
// more: what an earlier one could take, the last one can.
bool fits_pattern(std::string_view pattern, std::string_view name) {
  std::size_t next = 0;  // of the pattern
  std::size_t at = 0;    // of the name
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;  // of the name, behind what the star takes
  while (at < name.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      taken = at;
    } else if (next < pattern.size() &&
               (pattern[next] == '?' || pattern[next] == name[at])) {
      ++next;
      ++at;
    } else if (star != std::string_view::npos) {
      next = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == std::string_view::npos;
}

}  // namespace

bool fits(const ParameterGroup& group, const Parameter& parameter) {
  return (!group.most_dimensions ||
          std::ssize(parameter.whole) <= *group.most_dimensions) &&
         fits_pattern(group.pattern, parameter.name);
}

}  // namespace cleave
