#include "cleave/cli/launch/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "cleave/cli/exit.h"
#include "cleave/cli/interrupt.h"
#include "cleave/cli/launch/status_page.h"
#include "cleave/error.h"

namespace cleave {
namespace {

constexpr const char* kLauncher = "mpiexec";
constexpr int kNotFound = 127;

// The arguments this program was started with.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    arguments.push_back(argument);
  }
  return arguments;
}

// On one machine ranks may be more than cores, and choose their cores
// themselves. Other launchers than Open MPI's do not read these.
void let_share_cores() {
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", /*overwrite=*/0);
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", /*overwrite=*/0);
  setenv("OMPI_MCA_orte_execute_quiet", "1", /*overwrite=*/0);  // we report
  if (geteuid() == 0) {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", /*overwrite=*/0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", /*overwrite=*/0);
  }
}

// In the child: becomes the launcher. It has a group of its own, so that Ctrl-C
// reaches the ranks through us only, and ends when we do.
[[noreturn]] void become_launcher(const std::vector<std::string>& words) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // Outside of the terminal's group, reading from it would stop it.
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(kLauncher, arguments.data());
  _exit(kNotFound);
}

// Prints which ranks ended without a report.
void report_lost(const std::vector<StatusPage::Lost>& lost) {
  for (const StatusPage::Lost& one : lost) {
    std::cerr << "cleave: rank " << one.rank
              << " of this machine was lost in: " << one.doing << ".\n";
  }
  std::cerr << "cleave: the other ranks were ended.\n";
}

// Where MPI itself would wait for ever, at its start and at its end: ends the
// ranks that the others waited for in vain, and says so. The launcher then ends
// the others.
class EdgesWatch {
 public:
  EdgesWatch(const StatusPage& page, Seconds patience)
      : page_(page), patience_(patience), meet_by_(in_time()) {}

  void look() {
    if (is_over(meet_by_)) {
      end_ranks("meet", [](const StatusPage::Lost& one) {
        return one.doing == kStarting;
      });
    }
    if (!is_ending_ && page_.has_ended()) {
      is_ending_ = true;
      end_by_ = in_time();
    }
    if (is_over(end_by_)) {
      end_ranks("end with", [](const StatusPage::Lost&) { return true; });
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point in_time() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(patience_.value));
  }

  // Says so once.
  static bool is_over(Clock::time_point& end) {
    const bool over = Clock::now() >= end;
    end = over ? Clock::time_point::max() : end;
    return over;
  }

  template <class IsLate>
  void end_ranks(const char* what, const IsLate& is_late) const {
    for (const StatusPage::Lost& one : page_.lost()) {
      if (is_late(one)) {
        std::cerr << "cleave: rank " << one.rank << " of this machine did not "
                  << what << " the others in " << to_text(patience_) << ".\n";
        kill(one.process, SIGKILL);
      }
    }
  }

  const StatusPage& page_;
  Seconds patience_;
  Clock::time_point meet_by_;
  bool is_ending_ = false;
  Clock::time_point end_by_ = Clock::time_point::max();
};

// Waits for the child; passes an interruption on, once.
int wait_for(pid_t child, EdgesWatch& watch) {
  bool passed_on = false;
  for (;;) {
    watch.look();
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (interrupt_flag() && !passed_on) {
      kill(child, SIGUSR1);  // launchers hand it to the ranks
      passed_on = true;
    }
    usleep(20'000);
  }
}

}  // namespace

void launch_ranks(int ranks, Seconds patience) {
  interrupt_flag();
  let_share_cores();
  const StatusPage page(ranks);
  setenv(kStatusVariable, page.file().c_str(), /*overwrite=*/1);
  std::vector<std::string> words{kLauncher, "-n", std::to_string(ranks)};
  std::vector<std::string> own = own_arguments();
  own.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  words.insert(words.end(), own.begin(), own.end());
  const pid_t child = fork();
  if (child == 0) {
    become_launcher(words);
  }
  if (child < 0) {
    fail("cannot start another process", "See whether the system is full.");
  }
  EdgesWatch watch(page, patience);
  const int code = wait_for(child, watch);
  if (code == kNotFound) {
    fail(std::string("there is no ") + kLauncher + " to start ranks with",
         "Install an MPI, such as Debian's openmpi-bin, or use cpu:N.");
  }
  if (code == 0) {
    return;
  }
  if (const auto lost = page.lost(); !lost.empty()) {
    report_lost(lost);
    throw Exit{kResumable};
  }
  throw Exit{code};
}

}  // namespace cleave
