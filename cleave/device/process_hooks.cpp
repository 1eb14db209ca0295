#include <mutex>

#include "cleave/device/device.h"
#include "cleave/error.h"

namespace cleave {
namespace {

struct ChosenHooks {
  std::mutex mutex;  // guards all of it
  ProcessHooks hooks;
  bool in_use = false;
};

ChosenHooks& chosen_hooks() {
  static ChosenHooks chosen;
  return chosen;
}

}  // namespace

void use_process_hooks(const ProcessHooks& hooks) {
  ChosenHooks& chosen = chosen_hooks();
  const std::lock_guard lock(chosen.mutex);
  const bool same = hooks.allocator == chosen.hooks.allocator &&
                    hooks.dispatcher == chosen.hooks.dispatcher;
  if (chosen.in_use && !same) {
    fail("the hooks of this process are in use",
         "Call use_process_hooks() before anything is built or planned.");
  }
  chosen.hooks = hooks;
}

ProcessHooks process_hooks() {
  static const ProcessHooks hooks = [] {
    ChosenHooks& chosen = chosen_hooks();
    const std::lock_guard lock(chosen.mutex);
    chosen.in_use = true;
    return chosen.hooks;
  }();
  return hooks;
}

void check_budgets(const Devices& devices) {
  for (const Device& device : devices) {
    if (device.memory.value > 0 && !process_hooks().allocator) {
      fail("device '" + device.name + "' has a budget of " +
               to_text(device.memory) + ", but memory is not counted",
           "Leave the allocator hook in, or give no budget.");
    }
  }
}

}  // namespace cleave
