#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "cleave/comm/transport.h"

namespace cleave {

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

}  // namespace cleave
