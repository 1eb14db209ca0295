#include "cleave/cli/interrupt.h"

#include <csignal>

#include "cleave/error.h"

namespace cleave {
namespace {

std::atomic<bool> interrupted = false;  // NOLINT: a signal handler needs it

std::atomic<StatusPage*> page = nullptr;  // NOLINT: likewise

void on_signal(int signal) {
  interrupted = true;
  // Launchers end the ranks that are left so.
  StatusPage* const own = page;
  if (signal == SIGTERM && own != nullptr) {
    own->mark_ended();
  }
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

void mark_on_signals(StatusPage* own) {
  page = own;
}

void stop_if_interrupted() {
  if (interrupt_flag()) {
    fail("interrupted before training began; nothing was written", "");
  }
}

}  // namespace cleave
