// What single parts cost: handing a message over, splitting a backward, and the
// operations that we have of our own against libtorch's. Sides that belong
// together are run in turns with --benchmark_enable_random_interleaving=true.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <thread>

#include "cleave/comm/thread_world.h"
#include "cleave/device/memory.h"
#include "cleave/device/processor.h"
#include "cleave/model/families/families.h"
#include "cleave/model/kernels/attention.h"
#include "cleave/model/kernels/cross_entropy.h"
#include "cleave/model/kernels/gelu.h"
#include "cleave/model/kernels/products.h"
#include "cleave/stage/stage.h"

namespace cleave {
namespace {

constexpr Microbatch kOnly{0};

// There and back between two ranks: two messages of 1 MiB.
void hand_over(benchmark::State& state) {
  ThreadWorld world(2, Seconds{10});
  const Tag tag;
  std::thread other([&] {
    const auto end = world.connect({1});
    for (Message message = end->receive({0}, tag); message[0].defined();
         message = end->receive({0}, tag)) {
      end->send({0}, tag, std::move(message));
    }
  });
  const auto end = world.connect({0});
  const at::Tensor tensor = torch::empty({1 << 18});
  const void* memory = tensor.data_ptr();
  for (auto _ : state) {
    end->send({1}, tag, {tensor});
    if (end->receive({1}, tag).at(0).data_ptr() != memory) {
      state.SkipWithError("the message was copied");
      break;
    }
  }
  end->send({1}, tag, {at::Tensor()});
  other.join();
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(hand_over)->UseRealTime();

// Only what handing over itself costs, with a receiver that is not asleep.
void hand_over_without_waking(benchmark::State& state) {
  ThreadWorld world(2, Seconds{10});
  const auto from = world.connect({0});
  const auto to = world.connect({1});
  const at::Tensor tensor = torch::empty({1 << 18});
  for (auto _ : state) {
    from->send({1}, {}, {tensor});
    benchmark::DoNotOptimize(to->receive({0}, {}));
  }
}
BENCHMARK(hand_over_without_waking);

// A linear layer of the benchmark's GPT, with what its products take and make.
struct Linear {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor gradient;  // of its outputs
};

std::vector<Linear> linear_layers(at::ScalarType type) {
  constexpr std::int64_t kTokens = 512;
  constexpr int kBlocks = 8;
  std::vector<Linear> layers;
  const auto add = [&](std::int64_t from, std::int64_t to) {
    layers.push_back({torch::randn({kTokens, from}).to(type),
                      torch::randn({to, from}).to(type),
                      torch::randn({kTokens, to}).to(type)});
  };
  for (int block = 0; block < kBlocks; ++block) {
    add(512, 3 * 512);
    add(512, 512);
    add(512, 4 * 512);
    add(4 * 512, 512);
  }
  add(512, 8192);
  return layers;
}

// All matrix products that the GPT's linear layers need for a microbatch, and
// nothing else: what bf16 can gain at most.
void products(benchmark::State& state) {
  at::set_num_threads(1);
  const MemoryScope memory(std::make_shared<DeviceMemory>());
  const std::vector<Linear> layers =
      linear_layers(state.range(0) == 0 ? at::kFloat : at::kBFloat16);
  std::int64_t operations = 0;
  for (auto _ : state) {
    for (const auto& [input, weight, gradient] : layers) {
      benchmark::DoNotOptimize(linear_product(input, weight, {}));
      benchmark::DoNotOptimize(product(gradient, weight));
      benchmark::DoNotOptimize(weight_product(gradient, input));
      operations += 3 * 2 * input.size(0) * weight.numel();
    }
  }
  state.SetItemsProcessed(operations);
}
BENCHMARK(products)->ArgName("bf16")->Arg(0)->Arg(1)->Unit(
    benchmark::kMillisecond);

// A block of the benchmark's GPT, forward and backward, whole or as B and W.
// Forward and backward; 0: whole, 1: as B and W.
void split(benchmark::State& state, Stage stage, const at::Tensor& input) {
  at::set_num_threads(1);
  const MemoryScope memory(std::make_shared<DeviceMemory>());
  for (auto _ : state) {
    stage.begin(/*split=*/state.range(0) != 0);
    const Values outputs =
        stage.forward(kOnly, {input}, Moment{0, 1, kOnly}, {});
    stage.backward(kOnly, {torch::ones_like(outputs[0])});
    stage.weights(kOnly);
  }
}

void transformer_block(benchmark::State& state) {
  const Model model = gpt(
      {.width = 512, .depth = 1, .heads = 8, .context = 256, .vocabulary = 64});
  split(
      state, Stage(model, 1, 5), torch::randn({2, 256, 512}).requires_grad_());
}
BENCHMARK(transformer_block)->ArgName("split")->Arg(0)->Arg(1);

// Its weights are not those of an operation that knows how to wait: autograd's
// graph is walked to them.
struct LowRank : torch::nn::Module {
  explicit LowRank(std::int64_t width)
      : down(register_parameter("down", torch::randn({width / 4, width}))),
        up(register_parameter("up", torch::randn({width, width / 4}))) {}

  at::Tensor forward(const at::Tensor& input) {
    return torch::tanh(torch::linear(input, at::mm(up, down)));
  }

  at::Tensor down;
  at::Tensor up;
};

void low_rank_layers(benchmark::State& state) {
  Model model("walked");
  for (const char* name : {"a", "b", "c", "d"}) {
    model.add<LowRank>(name, 512);
  }
  split(state,
        Stage(model, 0, model.size()),
        torch::randn({512, 512}).requires_grad_());
}
BENCHMARK(low_rank_layers)->ArgName("split")->Arg(0)->Arg(1);

at::ScalarType type_of(const benchmark::State& state) {
  return state.range(1) == 0 ? at::kFloat : at::kBFloat16;
}

// Forward and backward; 0: libtorch's, 1: ours; 0: fp32, 1: bf16.
template <class Theirs, class Ours>
void compare(benchmark::State& state,
             const at::Tensor& made,
             const Theirs& theirs,
             const Ours& ours) {
  at::set_num_threads(1);
  const MemoryScope memory(std::make_shared<DeviceMemory>());
  const at::Tensor input = made.to(type_of(state)).requires_grad_();
  at::Tensor gradient;
  for (auto _ : state) {
    at::Tensor result = state.range(0) == 0 ? theirs(input) : ours(input);
    if (!gradient.defined()) {
      gradient = torch::ones_like(result);
    }
    benchmark::DoNotOptimize(
        torch::autograd::grad({result}, {input}, {gradient}));
  }
}

void gelu_both_ways(benchmark::State& state) {
  compare(
      state,
      torch::randn({512, 2048}),
      [](const at::Tensor& x) { return at::gelu(x, "tanh"); },
      tanh_gelu);
}
BENCHMARK(gelu_both_ways)
    ->ArgNames({"ours", "bf16"})
    ->ArgsProduct({{0, 1}, {0, 1}});

void attention_both_ways(benchmark::State& state) {
  compare(
      state,
      torch::randn({2, 256, 3 * 512}),
      [](const at::Tensor& qkv) {
        const at::Tensor parts =
            qkv.view({2, 256, 3, 8, 64}).permute({2, 0, 3, 1, 4});
        return at::scaled_dot_product_attention(
                   parts[0], parts[1], parts[2], {}, 0.0, true)
            .transpose(1, 2)
            .reshape({2, 256, 512});
      },
      [](const at::Tensor& qkv) { return causal_attention(qkv, 8); });
}
BENCHMARK(attention_both_ways)
    ->ArgNames({"ours", "bf16"})
    ->ArgsProduct({{0, 1}, {0, 1}});

void cross_entropy_both_ways(benchmark::State& state) {
  const at::Tensor targets = torch::randint(8192, {512});
  compare(
      state,
      torch::randn({512, 8192}),
      [&](const at::Tensor& scores) {
        return at::cross_entropy_loss(
            scores.to(at::kFloat), targets, {}, at::Reduction::Sum);
      },
      [&](const at::Tensor& scores) {
        return cross_entropy_sum({scores}, targets);
      });
}
BENCHMARK(cross_entropy_both_ways)
    ->ArgNames({"ours", "bf16"})
    ->ArgsProduct({{0, 1}, {0, 1}});

}  // namespace
}  // namespace cleave

int main(int count, char** arguments) {
  cleave::avoid_broken_tiles();
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
