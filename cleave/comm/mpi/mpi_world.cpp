#include "cleave/comm/mpi/mpi_world.h"

#include <chrono>
#include <map>
#include <optional>

#include "cleave/comm/mpi/envelope.h"
#include "cleave/comm/mpi/mpi_messages.h"
#include "cleave/device/memory.h"
#include "cleave/error.h"

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

// The kinds of failures: the first byte of a failure's text.
constexpr char kTimedOut = 'L';
constexpr char kBroken = 'B';  // anything else

// How often messages progress while the rank computes. Less often where none is
// under way, for every round costs the rank some time.
constexpr auto kRound = std::chrono::microseconds(200);
constexpr auto kIdleRound = std::chrono::milliseconds(1);
// A rank that waits polls, first without a pause, then with short ones: it may
// share its core with its peer. A thread that waits beside a computing rank
// polls rarely.
constexpr int kEagerRounds = 200;
constexpr Seconds kPause{1e-4};
constexpr Seconds kPatientPause{1e-2};
// For messages to leave when the run has failed.
constexpr Seconds kFlushTime{2};

// Messages between the leading threads of processes, not between ranks.
bool is_patient(const Tag& tag) {
  return tag.channel == Channel::report || tag.channel == Channel::agreement;
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.problem() + '\n' + error.fix();
  } catch (const std::exception& error) {
    return std::string(error.what()) + '\n';
  } catch (...) {
    return "unknown failure\n";
  }
}

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(MpiWorld& world) : world_(world) {}

  Rank rank() const override { return world_.rank(); }
  int ranks() const override { return world_.ranks(); }
  void send(Rank to, const Tag& tag, Message message) override {
    world_.send(to, tag, message);
  }
  Message receive(Rank from, const Tag& tag) override {
    return world_.take(from, tag);
  }
  bool has(Rank from, const Tag& tag) override { return world_.has(from, tag); }
  void expect(Rank from, const Tag& tag, const Message& into) override {
    world_.expect(from, tag, into);
  }
  void note(const Activity& doing) override { world_.note(doing); }

 private:
  MpiWorld& world_;
};

}  // namespace

MpiWorld::MpiWorld(Seconds patience)
    : patience_(patience), messages_(std::make_unique<MpiMessages>(mailbox_)) {
  rank_ = messages_->rank();
  find_places();
  progress_thread_ = std::jthread([this] { watch(); });
}

MpiWorld::~MpiWorld() {
  flush(failure() ? kFlushTime : patience_);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  progress_thread_.join();
  if (!failure() && messages_->all_sent()) {
    messages_->end();
  }
}

void MpiWorld::find_places() {
  std::map<std::string, int> on_host;
  for (const std::string& host : messages_->hosts()) {
    places_.push_back({host, on_host[host]++, 0});
  }
  for (MpiPlace& place : places_) {
    place.local_ranks = on_host[place.host];
  }
}

std::string MpiWorld::name(Rank rank) const {
  return name_of(rank) + " (" + place(rank).host + ")";
}

std::unique_ptr<Transport> MpiWorld::connect(Rank rank) {
  if (rank != rank_) {
    fail(name_of(rank) + " is another process", "Connect the own rank.");
  }
  if (std::shared_ptr<DeviceMemory> memory = MemoryScope::current()) {
    const std::lock_guard lock(mutex_);
    messages_->set_memory(std::move(memory));
  }
  return std::make_unique<MpiTransport>(*this);
}

void MpiWorld::keep_failure(std::exception_ptr failure, bool elsewhere) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) {
      failure_ = std::move(failure);
      elsewhere_ = elsewhere;
    }
  }
  mailbox_.wake();
}

void MpiWorld::abort(std::exception_ptr failure) {
  if (this->failure()) {
    return;
  }
  keep_failure(failure, /*elsewhere=*/false);
  const std::lock_guard lock(mutex_);
  notify_others(failure);
}

// REQUIRES: mutex_ is held.
void MpiWorld::notify_others(const std::exception_ptr& failure) {
  const std::string text =
      (timed_out() ? kTimedOut : kBroken) + text_of(failure);
  for (Rank rank; rank.value < ranks(); ++rank.value) {
    if (rank != rank_) {
      messages_->send_failure(rank, text);
    }
  }
}

std::exception_ptr MpiWorld::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void MpiWorld::keep_timed_out() {
  const std::lock_guard lock(failure_mutex_);
  timed_out_ = true;
}

bool MpiWorld::timed_out() const {
  const std::lock_guard lock(failure_mutex_);
  return timed_out_;
}

bool MpiWorld::failed_elsewhere() const {
  const std::lock_guard lock(failure_mutex_);
  return elsewhere_;
}

void MpiWorld::send(Rank to, const Tag& tag, const Message& message) {
  Message whole;
  for (const at::Tensor& tensor : message) {
    whole.push_back(tensor.defined() ? in_one_piece(tensor) : tensor);
  }
  if (to == rank_) {
    mailbox_.put(rank_, tag, std::move(whole));
    return;
  }
  bool inside = false;
  std::vector<char> bytes = seal(tag, whole, inside);
  const std::lock_guard lock(mutex_);
  messages_->send(to, std::move(bytes), inside ? Message{} : whole);
}

void MpiWorld::expect(Rank from, const Tag& tag, const Message& into) {
  const std::lock_guard lock(mutex_);
  messages_->expect(from, tag, into);
}

bool MpiWorld::has(Rank from, const Tag& tag) {
  {
    const std::lock_guard lock(mutex_);
    progress();
  }
  return mailbox_.has(from, tag);
}

Message MpiWorld::take(Rank from, const Tag& tag) {
  const auto failed = [this] { return failure() != nullptr; };
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(patience_.value));
  for (int round = 0;; ++round) {
    const bool last = Clock::now() >= end;
    {
      const std::lock_guard lock(mutex_);
      progress();
    }
    const Seconds pause = is_patient(tag)        ? kPatientPause
                          : round < kEagerRounds ? Seconds{}
                                                 : kPause;
    if (std::optional<Message> message =
            mailbox_.take(from, tag, pause, failed)) {
      const std::lock_guard lock(mutex_);
      messages_->forget_expected(from, tag);
      return *std::move(message);
    }
    if (failed()) {
      std::rethrow_exception(failure());
    }
    if (last) {
      keep_timed_out();
      fail_timed_out(name(rank_), name(from), tag, patience_);
    }
    std::this_thread::yield();
  }
}

void MpiWorld::progress() {
  watch_failures();
  messages_->progress();
}

void MpiWorld::watch_failures() {
  while (const auto received = messages_->next_failure()) {
    const std::string& bytes = received->bytes;
    if (bytes.starts_with(kTimedOut)) {
      keep_timed_out();
    }
    const std::size_t line = bytes.find('\n');
    const Error error(name(received->from) + ": " + bytes.substr(1, line - 1),
                      bytes.substr(line + 1));
    keep_failure(std::make_exception_ptr(error), /*elsewhere=*/true);
  }
}

// What goes wrong with messages, and not in anything that the rank does itself.
// REQUIRES: mutex_ is held.
void MpiWorld::fail_in_background(const std::exception_ptr& failure) {
  if (this->failure()) {
    return;
  }
  keep_failure(failure, /*elsewhere=*/false);
  try {
    notify_others(failure);
  } catch (const Error&) {
    // MPI itself is broken: others find out by their deadlines.
  }
}

void MpiWorld::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    try {
      progress();
    } catch (...) {
      fail_in_background(std::current_exception());
      return;
    }
    const bool busy = messages_->any_under_way();
    stop_.wait_for(lock,
                   busy ? Clock::duration(kRound) : Clock::duration(kIdleRound),
                   [this] { return stopping_; });
  }
}

void MpiWorld::flush(Seconds time) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(time.value));
  while (Clock::now() < end) {
    {
      const std::lock_guard lock(mutex_);
      try {
        progress();
      } catch (const Error&) {
        return;  // to ranks that are lost; the failure is known
      }
      if (messages_->all_sent()) {
        return;
      }
    }
    std::this_thread::sleep_for(kRound);
  }
}

std::unique_ptr<World> join_mpi(Seconds patience) {
  return std::make_unique<MpiWorld>(patience);
}

}  // namespace cleave
