#include "cleave/cli/interrupt.h"

#include <csignal>

#include "cleave/error.h"

namespace cleave {
namespace {

std::atomic<bool> interrupted = false;  // NOLINT: a signal handler needs it

void on_signal(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& interrupt_flag() {
  static const bool installed = [] {
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    std::signal(SIGUSR1, on_signal);  // as launchers pass it on to ranks
    return true;
  }();
  static_cast<void>(installed);
  return interrupted;
}

void stop_if_interrupted() {
  if (interrupt_flag()) {
    fail("interrupted before training began; nothing was written", "");
  }
}

}  // namespace cleave
