#include "cleave/model/intercept/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <mutex>
#include <string>

#include "cleave/device/device.h"
#include "cleave/model/intercept/intercept.h"
#include "cleave/model/layer.h"

namespace cleave {

// Made when something is drawn from it: most layers draw nothing, and filling
// a generator's state takes longer than many of them.
class LazyGenerator {
 public:
  explicit LazyGenerator(std::uint64_t key) : key_(key) {}

  const at::Generator& get() {
    if (!generator_.defined()) {
      generator_ = at::detail::createCPUGenerator(key_);
    }
    return generator_;
  }

 private:
  std::uint64_t key_;
  at::Generator generator_;
};

namespace {

// libtorch's random operations take a generator and fall back to one global
// per process, which concurrent stages would draw from in any order. Where a
// RandomStream is open, they are given the thread's own.

LazyGenerator*& current_generator() {
  // NOLINTNEXTLINE: what a thread draws from has to be known to the thread.
  thread_local LazyGenerator* generator = nullptr;
  return generator;
}

bool takes_generator(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  return optional &&
         optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

void draw_from_stream(const c10::OperatorHandle& op,
                      c10::DispatchKeySet keys,
                      torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; current_generator() && i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (takes_generator(arguments[i]) && value.isNone()) {
      value = current_generator()->get();
    }
  }
  op.redispatchBoxed(keys & kAfterIntercept, stack);
}

// Registers draw_from_stream for every operation of libtorch's that can be
// given a generator.
void register_random_operations(torch::Library& library) {
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::")) {
      continue;
    }
    const auto& arguments = op->schema().arguments();
    if (std::any_of(arguments.begin(), arguments.end(), takes_generator)) {
      library.impl(
          c10::toString(name).c_str(),
          torch::CppFunction::makeFromBoxedFunction<&draw_from_stream>());
    }
  }
}

void install_streams() {
  static torch::Library random(
      torch::Library::IMPL, "aten", kInterceptKey, __FILE__, __LINE__);
  static const bool installed = [] {
    register_random_operations(random);
    return true;
  }();
  static_cast<void>(installed);
}

// The finaliser of splitmix64: every bit of the result depends on every bit
// of the argument.
std::uint64_t mix(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

}  // namespace

std::uint64_t random_key(std::uint64_t seed, std::string_view layer) {
  std::uint64_t key = mix(seed);
  for (const char letter : layer) {
    key = mix(key ^ static_cast<unsigned char>(letter));
  }
  return key;
}

std::uint64_t random_key(const Moment& moment, std::string_view layer) {
  const auto step = static_cast<std::uint64_t>(moment.step);
  const auto microbatch = static_cast<std::uint64_t>(moment.microbatch.value);
  // Inverted, so that a step does not count as one more letter of the name.
  return mix(mix(~random_key(moment.seed, layer) ^ step) ^ microbatch);
}

struct RandomStream::State {
  explicit State(std::uint64_t key)
      : generator(key),
        before(std::exchange(current_generator(), &generator)) {}
  ~State() { current_generator() = before; }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  LazyGenerator generator;
  LazyGenerator* before;
  Intercept intercept;
};

// libtorch's global generator, seeded and later as it was. One thread at a time
// has it; a recipe may build a model of its own.
struct RandomStream::Global {
  explicit Global(std::uint64_t key)
      : lock(mutex()),
        generator(at::detail::getDefaultCPUGenerator()),
        before(generator.get_state()) {
    generator.set_current_seed(key);
  }
  ~Global() { generator.set_state(before); }
  Global(const Global&) = delete;
  Global& operator=(const Global&) = delete;

  static std::recursive_mutex& mutex() {
    static std::recursive_mutex one;
    return one;
  }

  std::unique_lock<std::recursive_mutex> lock;
  at::Generator generator;
  at::Tensor before;
};

RandomStream::RandomStream(std::uint64_t key) {
  if (!process_hooks().dispatcher) {
    global_ = std::make_unique<Global>(key);
    return;
  }
  install_streams();
  state_ = std::make_unique<State>(key);
}

RandomStream::~RandomStream() = default;

}  // namespace cleave
