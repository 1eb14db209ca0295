#pragma once

#include <optional>
#include <string>

namespace cleave {

// The N of "mpi:N"; 0 for "mpi", as many ranks as there are; nothing for
// other devices. Throws Error where N is no number of ranks.
std::optional<int> mpi_ranks(const std::string& use);

}  // namespace cleave
