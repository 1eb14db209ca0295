// A sum of 32 MiB over the ranks of an MPI job: MPI's own, ours over MPI, and
// ours between threads of one process; and what memory itself gives. Memory is
// reused as it is on a device.
//   mpirun -n 2 build/bench/bench_all_reduce
#include <mpi.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "cleave/comm/collectives.h"
#include "cleave/comm/mpi/mpi_world.h"
#include "cleave/comm/thread_world.h"
#include "cleave/device/memory.h"

namespace cleave {
namespace {

constexpr std::int64_t kNumbers = 8 << 20;
constexpr int kRounds = 25;

double median_ms(const std::function<void()>& work) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    times.push_back(spent.count());
  }
  std::ranges::sort(times);
  return times[kRounds / 2];
}

double of_mpi(const at::Tensor& values) {
  return median_ms([&] {
    MPI_Allreduce(MPI_IN_PLACE,
                  values.data_ptr<float>(),
                  kNumbers,
                  MPI_FLOAT,
                  MPI_SUM,
                  MPI_COMM_WORLD);
  });
}

double of_threads(int ranks) {
  ThreadWorld world(ranks, Seconds{60});
  double first = 0;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const MemoryScope scope(std::make_shared<DeviceMemory>());
      const auto end = world.connect({rank});
      const at::Tensor values = torch::zeros({kNumbers});
      const double median = median_ms([&] { all_reduce(*end, values); });
      first = rank == 0 ? median : first;
    });
  }
  threads.clear();
  return first;
}

double of_copying() {
  const at::Tensor from = torch::zeros({kNumbers});
  const at::Tensor to = torch::zeros({kNumbers});
  return median_ms(
      [&] { std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes()); });
}

void run() {
  at::set_num_threads(1);
  int threads = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
  const at::Tensor values = torch::zeros({kNumbers});
  const double before = of_mpi(values);
  double ours = 0;
  int rank = 0;
  int ranks = 0;
  {
    MpiWorld world(Seconds{60});
    const MemoryScope scope(std::make_shared<DeviceMemory>());
    const auto end = world.connect(world.rank());
    rank = world.rank().value;
    ranks = world.ranks();
    ours = median_ms([&] { all_reduce(*end, values); });
  }
  const double mpi = std::min(before, of_mpi(values));
  if (rank == 0) {
    const double local = of_threads(ranks);
    const double copy = of_copying();
    std::printf(
        "32 MiB over %d ranks: MPI_Allreduce %.1f ms, ours %.1f ms: "
        "%.2f of its speed\n",
        ranks,
        mpi,
        ours,
        mpi / ours);
    std::printf(
        "between threads %.1f ms; copying 32 MiB takes %.1f ms\n", local, copy);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}

}  // namespace
}  // namespace cleave

int main() {
  cleave::run();
}
