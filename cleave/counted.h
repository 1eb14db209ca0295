#pragma once

#include <cstdint>
#include <string>

namespace cleave {

// "3 layers", "1 layer"
inline std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace cleave
