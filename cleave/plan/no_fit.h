#pragma once

#include <string>
#include <vector>

#include "cleave/plan/draft.h"

namespace cleave {

// Throws Error that names the smallest budget with which one of the drafts
// would fit. REQUIRES: there are some, and none fits its devices' memory.
[[noreturn]] void fail_no_fit(const std::string& model,
                              const std::vector<Draft>& drafts);

}  // namespace cleave
