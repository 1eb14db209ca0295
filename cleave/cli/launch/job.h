#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cleave/cli/config/config.h"
#include "cleave/cli/launch/status_page.h"
#include "cleave/comm/link_speed.h"
#include "cleave/comm/mpi/mpi_world.h"
#include "cleave/device/device.h"

namespace cleave {

// The processes that run one command together: this one alone, or the ranks
// that an MPI launcher started.
class Job {
 public:
  // Joins the others, where a launcher started this process.
  explicit Job(const Config& config);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Alone, or the one of several that prints and writes.
  bool leads() const { return !world_ || world_->rank() == Rank{0}; }

  // The other ranks; null where there are none.
  MpiWorld* world() { return world_.get(); }

  // One for every rank, or those of this machine that the configuration names.
  // Every rank calls it. Throws Error where the configuration wants another
  // number of ranks; only the leader prints it.
  Devices devices(const Config& config);

  // The place of every rank, as a table; empty for a process alone.
  std::string table() const { return table_; }

  // The leader's text, on every rank. Only the leader's argument counts.
  std::string leaders(const std::string& text);

  // Throws Error, with the first line that differs, unless all ranks give the
  // same text. `what` names it. Only the leader prints it.
  void check_alike(const std::string& what, const std::string& text);

  // What messages between its ranks cost, measured with the devices.
  const MessageSpeed& messages() const { return messages_; }

  // Ends the others too, with the exception that is being handled.
  void abort();

  // Whether another rank failed first, and has reported it.
  bool failed_elsewhere() const { return world_ && world_->failed_elsewhere(); }

  // Whether a rank gave up waiting for another one.
  bool timed_out() const { return world_ && world_->timed_out(); }

 private:
  std::vector<std::string> all(const std::string& text);
  [[noreturn]] void fail_together(const std::string& problem,
                                  const std::string& fix);
  void check_ranks(const Config& config);
  Device own_device(const DeviceOptions& options);

  std::string launcher_;
  std::unique_ptr<StatusPage> page_;  // where a launcher of ours wants it
  std::unique_ptr<MpiWorld> world_;
  std::unique_ptr<Transport> others_;
  std::string table_;
  MessageSpeed messages_;
};

}  // namespace cleave
