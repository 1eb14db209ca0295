#include "cleave/policies.h"

#include <algorithm>

#include "cleave/error.h"

namespace cleave {

ShardStates shard_states_named(const std::string& name) {
  const auto* const known = std::ranges::find(kShardStatesNames, name);
  if (known == kShardStatesNames.end()) {
    std::string names;
    for (const std::string_view one : kShardStatesNames) {
      names += (names.empty() ? "" : ", ") + std::string(one);
    }
    fail("there is nothing to shard called '" + name + "'",
         "Choose one of: " + names + ".");
  }
  return static_cast<ShardStates>(known - kShardStatesNames.begin());
}

}  // namespace cleave
