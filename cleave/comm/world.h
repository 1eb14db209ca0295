#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "cleave/ids.h"
#include "cleave/units.h"

namespace cleave {

class Transport;

// All ranks of a run, as one process of it sees them: which of them are its
// own, and how each reaches the others. Thread-safe. Outlives its connections.
class World {
 public:
  virtual ~World() = default;

  virtual int ranks() const = 0;

  // Those that are threads of this process, ascending.
  virtual std::vector<Rank> local() const = 0;

  // The end of one of them.
  virtual std::unique_ptr<Transport> connect(Rank rank) = 0;

  // Ends every wait, now and later, on all ranks of all processes. The first
  // failure is kept.
  virtual void abort(std::exception_ptr failure) = 0;

  // What the first abort gave, here or elsewhere; null while all is well.
  virtual std::exception_ptr failure() const = 0;
};

// The ranks that an MPI launcher (mpirun, srun) started: this process is one.
// One at a time in a process. Starts MPI unless the program has, and then also
// ends it. `patience`: how long a rank waits for a message before it gives up.
// Throws Error where the MPI cannot be used by threads.
std::unique_ptr<World> join_mpi(Seconds patience = {300});

}  // namespace cleave
