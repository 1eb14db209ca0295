#include "cleave/comm/mpi/mpi_messages.h"

#include <algorithm>
#include <array>

#include "cleave/device/memory.h"
#include "cleave/error.h"

namespace cleave {
namespace {

// The kinds of messages below ours.
constexpr int kEnvelope = 1;
constexpr int kNumbers = 2;  // of the tensors of the envelope before
constexpr int kFailure = 3;  // a failure elsewhere

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // MPI counts by int
constexpr std::size_t kHostBytes = 256;

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

}  // namespace

MpiMessages::MpiMessages(Mailbox& mailbox) : mailbox_(mailbox) {
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
  ends_mpi_ = running == 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
  MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
}

void MpiMessages::end() {
  MPI_Comm_free(&ranks_);
  if (ends_mpi_) {
    MPI_Finalize();
  }
}

Rank MpiMessages::rank() const {
  Rank rank;
  MPI_Comm_rank(ranks_, &rank.value);
  return rank;
}

std::vector<std::string> MpiMessages::hosts() const {
  int ranks = 0;
  MPI_Comm_size(ranks_, &ranks);
  std::array<char, kHostBytes> own{};
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  int length = 0;
  MPI_Get_processor_name(host.data(), &length);
  std::copy_n(
      host.data(), std::min<std::size_t>(length, kHostBytes - 1), own.data());
  std::vector<char> all(kHostBytes * ranks);
  check(MPI_Allgather(own.data(),
                      kHostBytes,
                      MPI_CHAR,
                      all.data(),
                      kHostBytes,
                      MPI_CHAR,
                      ranks_),
        "gather the ranks' hosts");
  std::vector<std::string> hosts;
  hosts.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    hosts.emplace_back(all.data() + rank * kHostBytes);
  }
  return hosts;
}

void MpiMessages::send(Rank to,
                       std::vector<char> envelope,
                       const Message& outside) {
  post(to, kEnvelope, std::move(envelope), outside);
}

void MpiMessages::send_failure(Rank to, const std::string& text) {
  post(to, kFailure, {text.begin(), text.end()}, {});
}

void MpiMessages::post(Rank to,
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
                  ranks_,
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
                               ranks_,
                               &sent.requests.emplace_back()),
                     "send a message");
             });
  }
}

std::optional<MpiMessages::Received> MpiMessages::next_failure() {
  return next(kFailure);
}

std::optional<MpiMessages::Received> MpiMessages::next(int kind) {
  int found = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(MPI_ANY_SOURCE, kind, ranks_, &found, &handle, &status),
        "look for messages");
  if (found == 0) {
    return std::nullopt;
  }
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  Received received{{status.MPI_SOURCE}, std::string(count, '\0')};
  check(MPI_Mrecv(
            received.bytes.data(), count, MPI_BYTE, &handle, MPI_STATUS_IGNORE),
        "receive a message");
  return received;
}

void MpiMessages::expect(Rank from, const Tag& tag, const Message& into) {
  expected_[{from, tag}] = into;
}

void MpiMessages::forget_expected(Rank from, const Tag& tag) {
  expected_.erase({from, tag});
}

void MpiMessages::set_memory(std::shared_ptr<DeviceMemory> memory) {
  memory_ = std::move(memory);
}

void MpiMessages::progress() {
  open_envelopes();
  deliver();
  forget_sent();
}

bool MpiMessages::any_under_way() const {
  return !outgoing_.empty() ||
         std::ranges::any_of(incoming_, [](const auto& entry) {
           return !entry.second.empty();
         });
}

// Of all that came; and lets the numbers that follow be received.
void MpiMessages::open_envelopes() {
  const MemoryScope scope(memory_);
  while (const std::optional<Received> received = next(kEnvelope)) {
    Envelope envelope = unseal(received->bytes, [&](const Tag& tag) {
      const auto found = expected_.find({received->from, tag});
      return found == expected_.end() ? Message{} : found->second;
    });
    Incoming& incoming = incoming_[received->from.value].emplace_back();
    incoming.envelope = std::move(envelope);
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
                                 received->from.value,
                                 kNumbers,
                                 ranks_,
                                 &incoming.requests.emplace_back()),
                       "receive a message");
               });
    }
  }
}

// In the order of sending: messages with one tag must not overtake each other.
void MpiMessages::deliver() {
  for (auto& [from, messages] : incoming_) {
    while (!messages.empty() && all_done(messages.front().requests)) {
      Envelope& envelope = messages.front().envelope;
      mailbox_.put({from}, envelope.tag, std::move(envelope.tensors));
      messages.pop_front();
    }
  }
}

void MpiMessages::forget_sent() {
  std::erase_if(outgoing_,
                [](Outgoing& sent) { return all_done(sent.requests); });
}

}  // namespace cleave
