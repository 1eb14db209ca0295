#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace cleave {

struct Moment;

// Different for different arguments, the same on every machine.
std::uint64_t random_key(std::uint64_t seed, std::string_view layer);
std::uint64_t random_key(const Moment& moment, std::string_view layer);

// While it lives, every random operation of this thread that is not given a
// generator of its own (weight initialisation, dropout, torch::rand in a
// user's module …) draws from the stream of `key`, not from libtorch's one
// global generator. Streams nest. Without the dispatcher hook that generator
// itself is seeded and later restored, and only one thread has a stream at a
// time.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t key);
  ~RandomStream();
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

 private:
  struct State;
  struct Global;
  std::unique_ptr<State> state_;
  std::unique_ptr<Global> global_;  // without the dispatcher hook
};

}  // namespace cleave
