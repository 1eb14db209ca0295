#pragma once

#include "cleave/comm/mpi/mpi_world.h"

// A test program whose process is one rank of an MPI job: every rank runs all
// tests, in the same order. mpi_ranks.cpp has its main().
namespace cleave {

MpiWorld& test_world();

}  // namespace cleave
