#include "cleave/comm/mpi.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "cleave/comm/envelope.h"
#include "cleave/comm/memory.h"
#include "cleave/error.h"

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

// The kinds of messages below ours.
constexpr int kEnvelope = 1;
constexpr int kNumbers = 2;  // of the tensors of the envelope before
constexpr int kFailure = 3;  // a failure elsewhere: its kind, and its text

constexpr char kLate = 'L';    // somebody waited in vain
constexpr char kBroken = 'B';  // anything else

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // MPI counts by int
constexpr std::size_t kHostBytes = 256;

// While the rank computes, messages are looked after so often: less where none
// is under way, for it costs the rank a little each time.
constexpr auto kRound = std::chrono::microseconds(200);
constexpr auto kIdleRound = std::chrono::milliseconds(1);
// A rank that waits looks itself, first without a pause, then with short ones:
// it may share its core with the one it waits for. Who waits beside a rank that
// computes leaves that to others.
constexpr int kEagerRounds = 200;
constexpr Seconds kPause{1e-4};
constexpr Seconds kPatientPause{1e-2};
// What was sent gets so long to leave when the run has failed.
constexpr Seconds kLastWords{2};

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(std::string("MPI could not ") + what + ": " +
           std::string(text.data(), length),
       "See whether all hosts are up and reach each other.");
}

bool all_done(std::vector<MPI_Request>& requests) {
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests.size()),
                    requests.data(),
                    &done,
                    MPI_STATUSES_IGNORE),
        "move a message");
  return done != 0;
}

// Calls part(begin, count) for parts of a size that MPI can count.
template <class Part>
void in_parts(std::size_t bytes, const Part& part) {
  for (std::size_t begin = 0; begin < bytes; begin += kMostBytes) {
    part(begin, static_cast<int>(std::min(kMostBytes, bytes - begin)));
  }
}

// Of those who lead a process, not of its rank.
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
  explicit MpiTransport(MpiHub& hub) : hub_(hub) {}

  Rank rank() const override { return hub_.rank(); }
  int ranks() const override { return hub_.ranks(); }
  void send(Rank to, const Tag& tag, Message message) override {
    hub_.send(to, tag, message);
  }
  Message receive(Rank from, const Tag& tag) override {
    return hub_.take(from, tag);
  }
  bool has(Rank from, const Tag& tag) override { return hub_.has(from, tag); }
  void expect(Rank from, const Tag& tag, const Message& into) override {
    hub_.expect(from, tag, into);
  }
  void note(const Doing& doing) override { hub_.note(doing); }

 private:
  MpiHub& hub_;
};

}  // namespace

struct MpiHub::Session {
  Session() {
    int running = 0;
    MPI_Initialized(&running);
    int threads = MPI_THREAD_SINGLE;
    if (running == 0) {
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
    } else {
      MPI_Query_thread(&threads);
    }
    if (threads < MPI_THREAD_SERIALIZED) {
      fail("this MPI may be called by one thread only",
           "Use one with MPI_THREAD_SERIALIZED, or start it so.");
    }
    ends_mpi = running == 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  }

  // Only when all is well: others may be gone, and the end waits for them.
  void end() {
    MPI_Comm_free(&ranks);
    if (ends_mpi) {
      MPI_Finalize();
    }
  }

  MPI_Comm ranks = MPI_COMM_NULL;
  bool ends_mpi = false;
};

struct MpiHub::Outgoing {
  std::vector<char> bytes;
  Message message;  // keeps its memory
  std::vector<MPI_Request> requests;
};

struct MpiHub::Incoming {
  Envelope envelope;
  std::vector<MPI_Request> requests;
};

MpiHub::MpiHub(Seconds patience)
    : session_(std::make_unique<Session>()), patience_(patience) {
  MPI_Comm_rank(session_->ranks, &rank_.value);
  find_places();
  looking_after_ = std::jthread([this] { look_after(); });
}

MpiHub::~MpiHub() {
  flush(failure() ? kLastWords : patience_);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  looking_after_.join();
  if (!failure() && outgoing_.empty()) {
    session_->end();
  }
}

void MpiHub::find_places() {
  int ranks = 0;
  MPI_Comm_size(session_->ranks, &ranks);
  std::array<char, kHostBytes> own{};
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  int length = 0;
  MPI_Get_processor_name(host.data(), &length);
  std::copy_n(
      host.data(), std::min<std::size_t>(length, kHostBytes - 1), own.data());
  std::vector<char> hosts(kHostBytes * ranks);
  check(MPI_Allgather(own.data(),
                      kHostBytes,
                      MPI_CHAR,
                      hosts.data(),
                      kHostBytes,
                      MPI_CHAR,
                      session_->ranks),
        "tell the ranks' hosts");
  std::map<std::string, int> on_host;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = hosts.data() + rank * kHostBytes;
    places_.push_back({name, on_host[name]++, 0});
  }
  for (MpiPlace& place : places_) {
    place.local_ranks = on_host[place.host];
  }
}

std::string MpiHub::name(Rank rank) const {
  return name_of(rank) + " (" + place(rank).host + ")";
}

std::unique_ptr<Transport> MpiHub::connect(Rank rank) {
  if (rank != rank_) {
    fail(name_of(rank) + " is another process", "Connect the own rank.");
  }
  if (std::shared_ptr<DeviceMemory> memory = MemoryScope::current()) {
    const std::lock_guard lock(mutex_);
    memory_ = std::move(memory);
  }
  return std::make_unique<MpiTransport>(*this);
}

void MpiHub::keep_failure(std::exception_ptr failure, bool elsewhere) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) {
      failure_ = std::move(failure);
      elsewhere_ = elsewhere;
    }
  }
  mailbox_.wake();
}

void MpiHub::abort(std::exception_ptr failure) {
  if (this->failure()) {
    return;
  }
  const std::string text =
      (someone_was_late() ? kLate : kBroken) + text_of(failure);
  keep_failure(std::move(failure), /*elsewhere=*/false);
  const std::lock_guard lock(mutex_);
  for (Rank rank; rank.value < ranks(); ++rank.value) {
    if (rank != rank_) {
      post(rank, kFailure, {text.begin(), text.end()}, {});
    }
  }
}

std::exception_ptr MpiHub::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void MpiHub::keep_late() {
  const std::lock_guard lock(failure_mutex_);
  late_ = true;
}

bool MpiHub::someone_was_late() const {
  const std::lock_guard lock(failure_mutex_);
  return late_;
}

bool MpiHub::failed_elsewhere() const {
  const std::lock_guard lock(failure_mutex_);
  return elsewhere_;
}

void MpiHub::send(Rank to, const Tag& tag, const Message& message) {
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
  post(to, kEnvelope, std::move(bytes), inside ? Message{} : whole);
}

void MpiHub::post(Rank to,
                  int kind,
                  std::vector<char> bytes,
                  const Message& message) {
  Outgoing& sent = outgoing_.emplace_back();
  sent.bytes = std::move(bytes);
  sent.message = message;
  check(MPI_Isend(sent.bytes.data(),
                  static_cast<int>(sent.bytes.size()),
                  MPI_BYTE,
                  to.value,
                  kind,
                  session_->ranks,
                  &sent.requests.emplace_back()),
        "send a message");
  for (const at::Tensor& tensor : sent.message) {
    const char* const data =
        tensor.defined() ? static_cast<const char*>(tensor.const_data_ptr())
                         : nullptr;
    in_parts(tensor.defined() ? tensor.nbytes() : 0,
             [&](std::size_t begin, int count) {
               check(MPI_Isend(data + begin,
                               count,
                               MPI_BYTE,
                               to.value,
                               kNumbers,
                               session_->ranks,
                               &sent.requests.emplace_back()),
                     "send a message");
             });
  }
}

void MpiHub::expect(Rank from, const Tag& tag, const Message& into) {
  const std::lock_guard lock(mutex_);
  expected_[{from, tag}] = into;
}

bool MpiHub::has(Rank from, const Tag& tag) {
  {
    const std::lock_guard lock(mutex_);
    progress();
  }
  return mailbox_.has(from, tag);
}

Message MpiHub::take(Rank from, const Tag& tag) {
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
      expected_.erase({from, tag});
      return *std::move(message);
    }
    if (failed()) {
      std::rethrow_exception(failure());
    }
    if (last) {
      keep_late();
      fail_late(name(rank_), name(from), tag, patience_);
    }
    std::this_thread::yield();
  }
}

void MpiHub::progress() {
  hear_failures();
  open_envelopes();
  deliver();
  forget_sent();
}

std::optional<MpiHub::Letter> MpiHub::next(int kind) {
  int found = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(
            MPI_ANY_SOURCE, kind, session_->ranks, &found, &handle, &status),
        "look for messages");
  if (found == 0) {
    return std::nullopt;
  }
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  Letter letter{{status.MPI_SOURCE}, std::string(count, '\0')};
  check(MPI_Mrecv(
            letter.bytes.data(), count, MPI_BYTE, &handle, MPI_STATUS_IGNORE),
        "receive a message");
  return letter;
}

// Of all that came; and lets the numbers that follow be received.
void MpiHub::open_envelopes() {
  const MemoryScope scope(memory_);
  while (const std::optional<Letter> letter = next(kEnvelope)) {
    Incoming& incoming = incoming_[letter->from.value].emplace_back();
    incoming.envelope = unseal(letter->bytes, [&](const Tag& tag) {
      const auto found = expected_.find({letter->from, tag});
      return found == expected_.end() ? Message{} : found->second;
    });
    if (incoming.envelope.filled) {
      continue;
    }
    for (const at::Tensor& tensor : incoming.envelope.tensors) {
      char* const data =
          tensor.defined() ? static_cast<char*>(tensor.data_ptr()) : nullptr;
      in_parts(tensor.defined() ? tensor.nbytes() : 0,
               [&](std::size_t begin, int count) {
                 check(MPI_Irecv(data + begin,
                                 count,
                                 MPI_BYTE,
                                 letter->from.value,
                                 kNumbers,
                                 session_->ranks,
                                 &incoming.requests.emplace_back()),
                       "receive a message");
               });
    }
  }
}

void MpiHub::hear_failures() {
  while (const std::optional<Letter> letter = next(kFailure)) {
    const std::string& bytes = letter->bytes;
    if (bytes.starts_with(kLate)) {
      keep_late();
    }
    const std::size_t line = bytes.find('\n');
    const Error error(name(letter->from) + ": " + bytes.substr(1, line - 1),
                      bytes.substr(line + 1));
    keep_failure(std::make_exception_ptr(error), /*elsewhere=*/true);
  }
}

// In the order of sending: messages with one tag must not overtake each other.
void MpiHub::deliver() {
  for (auto& [from, messages] : incoming_) {
    while (!messages.empty() && all_done(messages.front().requests)) {
      Envelope& envelope = messages.front().envelope;
      mailbox_.put({from}, envelope.tag, std::move(envelope.tensors));
      messages.pop_front();
    }
  }
}

void MpiHub::forget_sent() {
  std::erase_if(outgoing_,
                [](Outgoing& sent) { return all_done(sent.requests); });
}

void MpiHub::look_after() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    try {
      progress();
    } catch (...) {
      keep_failure(std::current_exception(), /*elsewhere=*/false);
      return;
    }
    const bool busy = !outgoing_.empty() ||
                      std::ranges::any_of(incoming_, [](const auto& entry) {
                        return !entry.second.empty();
                      });
    stop_.wait_for(lock,
                   busy ? Clock::duration(kRound) : Clock::duration(kIdleRound),
                   [this] { return stopping_; });
  }
}

void MpiHub::flush(Seconds time) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(time.value));
  while (Clock::now() < end) {
    {
      const std::lock_guard lock(mutex_);
      try {
        progress();
      } catch (const Error&) {
        return;  // of those who are gone; the failure is known
      }
      if (outgoing_.empty()) {
        return;
      }
    }
    std::this_thread::sleep_for(kRound);
  }
}

}  // namespace cleave
