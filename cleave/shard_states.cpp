#include "cleave/shard_states.h"

#include <algorithm>

#include "cleave/error.h"

namespace cleave {

Shard shard_named(const std::string& name) {
  const auto* const known = std::ranges::find(kShardNames, name);
  if (known == kShardNames.end()) {
    std::string names;
    for (const std::string_view one : kShardNames) {
      names += (names.empty() ? "" : ", ") + std::string(one);
    }
    fail("there is nothing to shard called '" + name + "'",
         "Choose one of: " + names + ".");
  }
  return static_cast<Shard>(known - kShardNames.begin());
}

}  // namespace cleave
