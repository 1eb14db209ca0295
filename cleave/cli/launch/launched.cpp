#include "cleave/cli/launch/launched.h"

#include <array>
#include <charconv>
#include <string_view>

#include "cleave/error.h"

namespace cleave {
namespace {

struct Launcher {
  const char* by;
  const char* rank;
  const char* ranks;
};

// Open MPI; MPICH and what follows it; Slurm, whose variables are also there
// when another launcher starts the processes, so they count last.
constexpr std::array kMpiLaunchers{
    Launcher{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    Launcher{"mpiexec", "PMI_RANK", "PMI_SIZE"},
};
constexpr Launcher kSlurm{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};

int number(const char* name, std::string_view text, int least) {
  int value = 0;
  const auto read =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() ||
      value < least) {
    fail(std::string(name) + " is '" + std::string(text) +
             "', which is no number of a launcher",
         "Start the ranks with mpirun or srun, or unset it.");
  }
  return value;
}

std::optional<Launched> read(const Launcher& launcher,
                             const Environment& environment) {
  const char* const rank = environment(launcher.rank);
  const char* const ranks = environment(launcher.ranks);
  if (rank == nullptr || ranks == nullptr) {
    return std::nullopt;
  }
  return Launched{number(launcher.rank, rank, 0),
                  number(launcher.ranks, ranks, 1),
                  launcher.by};
}

std::string text_of(const Launched& launched) {
  return "rank " + std::to_string(launched.rank) + " of " +
         std::to_string(launched.ranks) + " (" + launched.by + ")";
}

// Without such a service of srun, every process would be an MPI job of its own.
void check_slurm(const Launched& launched, const Environment& environment) {
  const char* const service = environment("SLURM_MPI_TYPE");
  const bool has_none =
      service == nullptr || std::string_view(service) == "none";
  if (launched.ranks > 1 && has_none && environment("PMIX_RANK") == nullptr) {
    fail("srun started " + std::to_string(launched.ranks) +
             " processes that cannot find each other",
         "Start them with srun --mpi=pmix, or with mpirun.");
  }
}

}  // namespace

std::optional<Launched> launched(const Environment& environment) {
  std::optional<Launched> found;
  for (const Launcher& launcher : kMpiLaunchers) {
    const std::optional<Launched> other = read(launcher, environment);
    if (found && other &&
        (found->rank != other->rank || found->ranks != other->ranks)) {
      fail("two launchers started this process: it is " + text_of(*found) +
               " and " + text_of(*other),
           "Start it with one of them.");
    }
    found = found ? found : other;
  }
  if (!found && (found = read(kSlurm, environment))) {
    check_slurm(*found, environment);
  }
  return found;
}

}  // namespace cleave
