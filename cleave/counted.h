#pragma once

#include <cstdint>
#include <string>

namespace cleave {

// "3 layers", "1 layer", "2 microbatches".
inline std::string counted(std::int64_t count, const std::string& noun) {
  const char* const plural = noun.ends_with("ch") ? "es" : "s";
  return std::to_string(count) + " " + noun + (count == 1 ? "" : plural);
}

}  // namespace cleave
