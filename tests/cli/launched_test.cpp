#include "cleave/cli/launch/launched.h"

#include <gtest/gtest.h>

#include <map>

#include "cleave/cli/launch/mpi_ranks.h"
#include "cleave/error.h"

namespace cleave {
namespace {

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Launched, by_nobody_is_a_process_alone) {
  EXPECT_EQ(launched(environment({})), std::nullopt);
  EXPECT_EQ(launched(environment({{"SLURM_PROCID", "0"}})), std::nullopt);
}

TEST(Launched, every_launcher_tells_rank_and_ranks) {
  EXPECT_EQ(launched(environment({{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"}})),
            (Launched{2, 4, "mpirun"}));
  EXPECT_EQ(launched(environment({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})),
            (Launched{1, 2, "mpiexec"}));
  EXPECT_EQ(launched(environment({{"SLURM_PROCID", "7"},
                                  {"SLURM_STEP_NUM_TASKS", "8"},
                                  {"SLURM_MPI_TYPE", "pmix"}})),
            (Launched{7, 8, "srun"}));
}

// srun without --mpi: its processes have numbers, but no MPI to meet in.
TEST(Launched, by_srun_alone_is_refused) {
  const auto ranks = [](const char* count) {
    return launched(
        environment({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", count}}));
  };
  EXPECT_THROW(ranks("2"), Error);
  EXPECT_THROW(launched(environment({{"SLURM_PROCID", "0"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_MPI_TYPE", "none"}})),
               Error);
  EXPECT_EQ(ranks("1"), (Launched{0, 1, "srun"}));
}

// mpirun inside a Slurm job: Slurm's variables are those of the job.
TEST(Launched, an_mpi_launcher_counts_more_than_slurm) {
  EXPECT_EQ(launched(environment({{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"SLURM_PROCID", "0"},
                                  {"SLURM_STEP_NUM_TASKS", "1"}})),
            (Launched{2, 4, "mpirun"}));
}

TEST(Launched, two_launchers_that_disagree_are_refused) {
  EXPECT_THROW(launched(environment({{"OMPI_COMM_WORLD_RANK", "2"},
                                     {"OMPI_COMM_WORLD_SIZE", "4"},
                                     {"PMI_RANK", "0"},
                                     {"PMI_SIZE", "2"}})),
               Error);
}

TEST(Launched, what_is_no_number_is_refused) {
  for (const char* wrong : {"", "x", "-1", "1x", "99999999999"}) {
    EXPECT_THROW(launched(environment({{"OMPI_COMM_WORLD_RANK", wrong},
                                       {"OMPI_COMM_WORLD_SIZE", "4"}})),
                 Error)
        << wrong;
  }
}

TEST(MpiRanks, are_those_that_the_devices_name) {
  EXPECT_EQ(mpi_ranks("cpu:4"), std::nullopt);
  EXPECT_EQ(mpi_ranks("mpi"), 0);
  EXPECT_EQ(mpi_ranks("mpi:12"), 12);
  for (const char* wrong : {"mpi:", "mpi:0", "mpi:-2", "mpi:x", "mpi:4 "}) {
    EXPECT_THROW(mpi_ranks(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace cleave
