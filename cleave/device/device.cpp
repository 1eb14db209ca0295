#include "cleave/device/device.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <torch/cuda.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "cleave/device/processor.h"
#include "cleave/error.h"

namespace cleave {
namespace {

constexpr int kMaxDevices = 256;

// Where a core lies: hardware threads of one core lie together.
std::pair<int, int> place_of(int core) {
  const std::string folder =
      "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/";
  const auto number_in = [](const std::string& file) {
    int number = 0;
    std::ifstream(file) >> number;  // zero where the system does not say
    return number;
  };
  return {number_in(folder + "physical_package_id"),
          number_in(folder + "core_id")};
}

// Ordered so that neighbours share the most.
std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) {
      cores.push_back(core);
    }
  }
  std::ranges::stable_sort(cores, {}, place_of);
  return cores;
}

int count_of(const std::string& use) {
  constexpr std::string_view kPrefix = "cpu:";
  int count = 0;
  if (use.starts_with(kPrefix)) {
    const char* end = use.data() + use.size();
    const auto read = std::from_chars(use.data() + kPrefix.size(), end, count);
    if (read.ec != std::errc() || read.ptr != end) {
      count = 0;
    }
  }
  if (count < 1 || count > kMaxDevices) {
    fail("'" + use + "' names no devices",
         "Write cpu:N for N devices on this machine's cores, N from 1 to " +
             std::to_string(kMaxDevices) +
             "; trainings and plans also take mpi:N.");
  }
  return count;
}

// The cores of device `index` of `count`: consecutive runs of equal length;
// one core each, in turn, where there are fewer cores than devices.
std::vector<int> share_of(const std::vector<int>& cores, int index, int count) {
  const std::ptrdiff_t total = std::ssize(cores);
  if (total < count) {
    return {cores[index % total]};
  }
  const std::ptrdiff_t each = total / count;
  return {cores.begin() + index * each, cores.begin() + (index + 1) * each};
}

// Binds the calling thread to these cores, if there are any.
void stay_on(const std::vector<int>& cores) {
  if (cores.empty()) {
    return;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    CPU_SET(core, &set);
  }
  // A container may forbid it; the thread then runs unpinned, and correctly.
  sched_setaffinity(0, sizeof(set), &set);
}

// Of the calling thread's operations. A thread's first at::get_num_threads()
// overwrites its setting with the last one of any thread, so we call it first.
void use_threads(int count) {
  at::get_num_threads();
  at::set_num_threads(count);
}

}  // namespace

Device device_share(int index, int count, const DeviceOptions& options) {
  avoid_broken_tiles();
  const std::vector<int> share = share_of(usable_cores(), index, count);
  return {
      .name = "",
      .cores = options.pin ? share : std::vector<int>{},
      .threads = options.threads > 0 ? options.threads
                                     : static_cast<int>(share.size()),
      .memory = options.memory,
  };
}

Devices local_devices(const std::string& use, const DeviceOptions& options) {
  const int count = count_of(use);
  Devices devices;
  for (int index = 0; index < count; ++index) {
    devices.push_back(device_share(index, count, options));
    devices.back().name = "cpu:" + std::to_string(index);
  }
  return devices;
}

void bind_to(const Device& device) {
  stay_on(device.cores);
  use_threads(device.threads);
}

std::ptrdiff_t count_on_cores_of(const Device& device, const Devices& devices) {
  return device.cores.empty()
             ? 0
             : std::ranges::count(devices, device.cores, &Device::cores);
}

bool take_all_cores(const Devices& devices) {
  std::size_t threads = 0;
  for (const Device& device : devices) {
    if (device.cores.empty()) {
      return false;
    }
    threads += std::min<std::size_t>(device.threads, device.cores.size());
  }
  return threads >= usable_cores().size();
}

PinnedScope::PinnedScope(const std::vector<int>& cores)
    : before_(usable_cores()) {
  stay_on(cores);
}

PinnedScope::~PinnedScope() {
  stay_on(before_);
}

SingleThreadScope::SingleThreadScope() : threads_(at::get_num_threads()) {
  use_threads(1);
}

SingleThreadScope::~SingleThreadScope() {
  use_threads(threads_);
}

Machine this_machine() {
  Machine machine;
  machine.cores = usable_cores();
  machine.memory = {static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) *
                    sysconf(_SC_PAGE_SIZE)};
  machine.libtorch = TORCH_VERSION;
  machine.gpus = static_cast<unsigned char>(torch::cuda::device_count());
  machine.processor = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      machine.processor = line.substr(line.find(':') + 2);
      break;
    }
  }
  return machine;
}

}  // namespace cleave
