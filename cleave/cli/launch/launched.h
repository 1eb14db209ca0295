#pragma once

#include <functional>
#include <optional>
#include <string>

namespace cleave {

// What a launcher set in the environment of this process.
struct Launched {
  int rank = 0;
  int ranks = 1;
  std::string by;  // "mpirun", "srun"

  bool operator==(const Launched&) const = default;
};

// Reads a variable of the environment; null where it is not set.
using Environment = std::function<const char*(const char* name)>;

// Of the launchers that MPI jobs have; nothing where none started this
// process. Throws Error where two of them disagree, one is not to be
// understood, or it gives its processes no way to each other.
std::optional<Launched> launched(const Environment& environment);

}  // namespace cleave
