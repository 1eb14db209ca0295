#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cleave/units.h"

namespace cleave {

// Where one stage runs: some cores of this machine.
struct Device {
  std::string name;        // "cpu:0"
  std::vector<int> cores;  // empty: wherever the system puts it
  int threads = 1;         // that one operation may use
  Bytes memory;            // its budget; zero: without limit
  bool elsewhere = false;  // on another machine
  bool process = false;    // its rank is a process, not a thread of this one
};

using Devices = std::vector<Device>;

struct DeviceOptions {
  Bytes memory;     // budget of each device; zero: without limit
  int threads = 0;  // per device; 0: its share of the cores
  bool pin = true;  // keep each device on cores of its own
};

// The devices that `use` names. "cpu:N" gives N devices that divide the cores
// of this process among them; where there are fewer cores than devices, they
// share. Throws Error on anything else.
Devices local_devices(const std::string& use,
                      const DeviceOptions& options = {});

// The device of a process that shares this machine with others: part `index`
// of `count` equal ones. Has no name.
Device device_share(int index, int count, const DeviceOptions& options = {});

// Binds the calling thread, and the team of threads its operations use, to the
// device's cores.
void bind_to(const Device& device);

// How many of these have the very cores of the device, itself included if it is
// one of them. None where it is not known which it has.
std::ptrdiff_t count_on_cores_of(const Device& device, const Devices& devices);

// Whether the threads of these devices leave no core of this process to others.
// False where it is not known which cores they have.
bool take_all_cores(const Devices& devices);

// While it lives, the calling thread stays on these cores; on any that it could
// use before where there are none.
class PinnedScope {
 public:
  explicit PinnedScope(const std::vector<int>& cores);
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;
  ~PinnedScope();

 private:
  std::vector<int> before_;
};

// While it lives, operations of the calling thread use no other: the cores
// belong to the devices, and threads of a team that is done go on spinning for
// a while, in which a device would have to share its core with them.
class SingleThreadScope {
 public:
  SingleThreadScope();
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;
  ~SingleThreadScope();

 private:
  int threads_;  // before
};

// What Cleave puts in libtorch's way, for the whole process;
// docs/in_your_process.md says what is lost without.
struct ProcessHooks {
  bool allocator = true;   // of CPU tensors: counts them, and keeps budgets
  bool dispatcher = true;  // operations of layers come to ours first
};

// Leaves out what is false. Comes before all else of the library: throws Error
// when another choice is in use.
void use_process_hooks(const ProcessHooks& hooks);

// Those in use, from now on.
ProcessHooks process_hooks();

// Throws Error where a device has a budget that nobody would keep.
void check_budgets(const Devices& devices);

// What this machine offers, for people to read.
struct Machine {
  std::string processor;
  std::vector<int> cores;  // that this process may use
  Bytes memory;
  std::string libtorch;
  int gpus = 0;
};

Machine this_machine();

}  // namespace cleave
