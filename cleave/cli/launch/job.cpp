#include "cleave/cli/launch/job.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iomanip>
#include <sstream>

#include "cleave/cli/assemble.h"
#include "cleave/cli/interrupt.h"
#include "cleave/cli/launch/launch.h"
#include "cleave/cli/launch/launched.h"
#include "cleave/cli/launch/mpi_ranks.h"
#include "cleave/comm/collectives.h"
#include "cleave/comm/text_tensor.h"
#include "cleave/error.h"

namespace cleave {
namespace {

constexpr Tag kNever{Channel::agreement, /*index=*/101, {}};

// The first one of this machine that other hosts can reach.
std::string own_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return "unknown";
  }
  std::string found = "127.0.0.1";
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found = text.data();
    break;
  }
  freeifaddrs(all);
  return found;
}

std::string list_of(const std::vector<int>& cores) {
  std::string text;
  for (const int core : cores) {
    text += (text.empty() ? "" : ",") + std::to_string(core);
  }
  return text;
}

std::string table_line(const std::string& rank,
                       const std::string& host,
                       const std::string& address,
                       const std::string& process,
                       const std::string& device,
                       const std::string& cores) {
  std::ostringstream line;
  line << std::left << std::setw(6) << rank << std::setw(20) << host
       << std::setw(17) << address << std::setw(10) << process << std::setw(9)
       << device << cores << '\n';
  return line.str();
}

// The first line in which they differ, from each.
std::pair<std::string, std::string> difference(const std::string& a,
                                               const std::string& b) {
  std::istringstream first(a);
  std::istringstream second(b);
  std::string x;
  std::string y;
  while (x == y && (first || second)) {
    x.clear();
    y.clear();
    std::getline(first, x);
    std::getline(second, y);
  }
  return {x, y};
}

void check_launcher(const MpiWorld& world, const Launched& launched) {
  if (world.ranks() != launched.ranks || world.rank().value != launched.rank) {
    fail(launched.by + " started rank " + std::to_string(launched.rank) +
             " of " + std::to_string(launched.ranks) + ", but MPI says rank " +
             std::to_string(world.rank().value) + " of " +
             std::to_string(world.ranks()),
         "Use the launcher of the MPI that cleave was built with.");
  }
}

}  // namespace

Job::Job(const Config& config) {
  const std::optional<Launched> by_launcher = launched(std::getenv);
  if (!by_launcher) {
    return;
  }
  if (const char* const file = std::getenv(kStatusVariable)) {
    page_ = std::make_unique<StatusPage>(
        file, by_launcher->rank, by_launcher->ranks);
    page_->write(kStarting);
    mark_on_signals(page_.get());
  }
  world_ = std::make_unique<MpiWorld>(config.devices.patience);
  world_->set_note([this](const Activity& doing) {
    if (page_) {
      page_->write(to_text(doing));
    }
  });
  world_->note({"preparation", {}, {}});
  others_ = world_->connect(world_->rank());
  check_launcher(*world_, *by_launcher);
  launcher_ = by_launcher->by;
}

Job::~Job() {
  if (page_) {
    page_->mark_ended();
    mark_on_signals(nullptr);
  }
}

std::vector<std::string> Job::all(const std::string& text) {
  std::vector<std::string> texts;
  for (const at::Tensor& bytes :
       all_gather(*others_, tensor_of(text), Channel::agreement)) {
    texts.push_back(text_of(bytes));
  }
  return texts;
}

std::string Job::leaders(const std::string& text) {
  return others_
             ? text_of(
                   broadcast(
                       *others_, {tensor_of(text)}, Rank{0}, Channel::agreement)
                       .at(0))
             : text;
}

void Job::check_alike(const std::string& what, const std::string& text) {
  if (!others_) {
    return;
  }
  const std::vector<std::string> texts = all(text);
  for (Rank rank{1}; rank.value < std::ssize(texts); ++rank.value) {
    if (texts[rank.value] != texts[0]) {
      const auto [first, other] = difference(texts[0], texts[rank.value]);
      std::ostringstream problem;
      problem << "the ranks were started with different " << what << ": "
              << world_->name({0}) << " has '" << first << "', "
              << world_->name(rank) << " has '" << other << "'";
      fail_together(problem.str(), "Start all ranks with the same files.");
    }
  }
}

// Fails on every rank; the leader prints it.
void Job::fail_together(const std::string& problem, const std::string& fix) {
  if (!leads()) {
    others_->receive({0}, kNever);  // ends when the leader has failed
  }
  fail(problem, fix);
}

void Job::check_ranks(const Config& config) {
  const int wanted = mpi_ranks(config.devices.use).value_or(0);
  if (wanted > 0 && wanted != world_->ranks()) {
    fail_together("devices.use is " + config.devices.use + ", but " +
                      launcher_ + " started " +
                      std::to_string(world_->ranks()) + " ranks",
                  "Make them agree, or set devices.use to mpi.");
  }
}

void Job::abort() {
  if (page_) {
    page_->mark_ended();
  }
  if (world_) {
    world_->abort(std::current_exception());
  }
}

// A launcher may have bound every rank to cores of its own; where it has not,
// those of one host divide its cores.
Device Job::own_device(const DeviceOptions& options) {
  const MpiPlace& place = world_->place(world_->rank());
  const std::string cores = list_of(this_machine().cores);
  const std::vector<std::string> of_all = all(cores);
  bool bound = false;
  for (Rank rank; rank.value < world_->ranks(); ++rank.value) {
    bound = bound || (world_->place(rank).host == place.host &&
                      of_all[rank.value] != cores);
  }
  Device own = bound
                   ? device_share(0, 1, options)
                   : device_share(place.local_rank, place.local_ranks, options);
  own.name = "mpi:" + std::to_string(world_->rank().value);
  own.process = true;
  return own;
}

Devices Job::devices(const Config& config) {
  const DeviceOptions options = device_options_of(config);
  if (!world_) {
    return local_devices(config.devices.use, options);
  }
  check_ranks(config);
  const Device own = own_device(options);
  table_ = table_line("rank", "host", "address", "process", "device", "cores");
  for (const std::string& line :
       all(table_line(std::to_string(world_->rank().value),
                      world_->place(world_->rank()).host,
                      own_address(),
                      std::to_string(getpid()),
                      own.name,
                      own.cores.empty() ? "any" : list_of(own.cores)))) {
    table_ += line;
  }
  const std::string own_host = world_->place(world_->rank()).host;
  Devices devices;
  for (Rank rank; rank.value < world_->ranks(); ++rank.value) {
    devices.push_back({.name = "mpi:" + std::to_string(rank.value),
                       .cores = {},
                       .threads = own.threads,
                       .memory = options.memory,
                       .elsewhere = world_->place(rank).host != own_host,
                       .process = true});
  }
  devices[world_->rank().value] = own;
  messages_ = measure_messages(*others_);
  return devices;
}

}  // namespace cleave
