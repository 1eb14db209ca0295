#include "cleave/train/gather.h"

#include <torch/types.h>

#include "cleave/comm/clocks.h"
#include "cleave/comm/collectives.h"
#include "cleave/comm/text_tensor.h"

namespace cleave {
namespace {

// A result as numbers, all of which doubles hold exactly.
at::Tensor packed(const PassResult& result) {
  std::vector<double> numbers{
      result.loss_sum,
      static_cast<double>(result.correct),
      result.busy.value,
      result.gradient_norm ? 1.0 : 0.0,
      result.gradient_norm.value_or(0),
      static_cast<double>(result.peak_memory.value),
  };
  for (const auto& [span, by] : result.timed_actions) {
    numbers.insert(numbers.end(),
                   {static_cast<double>(span.action.op),
                    static_cast<double>(span.action.stage.value),
                    static_cast<double>(span.action.index),
                    span.start.value,
                    span.end.value,
                    static_cast<double>(by.value)});
  }
  return torch::tensor(numbers, at::kDouble);
}

PassResult unpacked(const at::Tensor& tensor) {
  const auto numbers = tensor.accessor<double, 1>();
  const auto whole = [&](std::int64_t i) {
    return static_cast<std::int64_t>(numbers[i]);
  };
  PassResult result;
  result.loss_sum = numbers[0];
  result.correct = whole(1);
  result.busy = {numbers[2]};
  if (numbers[3] > 0) {
    result.gradient_norm = numbers[4];
  }
  result.peak_memory = {whole(5)};
  for (std::int64_t i = 6; i + 5 < tensor.numel(); i += 6) {
    const Action action{static_cast<Op>(whole(i)),
                        {static_cast<int>(whole(i + 1))},
                        static_cast<int>(whole(i + 2)),
                        {}};
    result.timed_actions.push_back(
        {{action, {numbers[i + 3]}, {numbers[i + 4]}},
         {static_cast<int>(whole(i + 5))}});
  }
  return result;
}

void bring_to_one_clock(std::vector<PassResult>& results,
                        const std::vector<Seconds>& leads) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    for (auto& [span, by] : results[rank].timed_actions) {
      span.start = span.start - leads[rank];
      span.end = span.end - leads[rank];
    }
  }
}

// A stage's state: which, then a name before every tensor.
Message packed(StageId stage, const NamedTensors& state) {
  Message message{torch::tensor(stage.value)};
  for (const auto& [name, tensor] : state) {
    message.push_back(tensor_of(name));
    message.push_back(tensor);
  }
  return message;
}

std::pair<StageId, NamedTensors> unpacked(const Message& message) {
  NamedTensors state;
  for (std::size_t i = 1; i + 1 < message.size(); i += 2) {
    state.emplace_back(text_of(message[i]), message[i + 1]);
  }
  return {{message[0].item<int>()}, state};
}

}  // namespace

Gather::Gather(World& world) {
  if (std::ssize(world.local()) < world.ranks()) {
    others_ = world.connect(world.local().front());
  }
}

std::vector<PassResult> Gather::results(std::vector<PassResult> own) {
  if (!others_) {
    return own;
  }
  std::vector<PassResult> all;
  bool traced = false;
  for (const at::Tensor& numbers :
       all_gather(*others_,
                  packed(own.empty() ? PassResult{} : own.front()),
                  Channel::report)) {
    all.push_back(unpacked(numbers));
    traced = traced || !all.back().timed_actions.empty();
  }
  if (traced) {  // as all processes now know
    bring_to_one_clock(all, clock_leads(*others_));
  }
  return all;
}

std::vector<std::uint64_t> Gather::numbers(std::vector<std::uint64_t> own) {
  if (!others_) {
    return own;
  }
  const auto number = static_cast<std::int64_t>(own.empty() ? 0 : own.front());
  std::vector<std::uint64_t> all;
  for (const at::Tensor& other :
       all_gather(*others_, torch::tensor(number), Channel::report)) {
    all.push_back(static_cast<std::uint64_t>(other.item<std::int64_t>()));
  }
  return all;
}

bool Gather::any(bool own) {
  if (!others_) {
    return own;
  }
  bool found = false;
  for (const at::Tensor& says :
       all_gather(*others_, torch::tensor(own), Channel::agreement)) {
    found = found || says.item<bool>();
  }
  return found;
}

std::map<StageId, NamedTensors> Gather::states(
    std::map<StageId, NamedTensors> own) {
  constexpr Rank kLeader{0};
  constexpr Tag kTag{Channel::report, /*index=*/100, {}};
  if (!others_) {
    return own;
  }
  if (others_->rank() != kLeader) {
    others_->send(kLeader, kTag, {torch::tensor(std::ssize(own))});
    for (const auto& [stage, state] : own) {
      others_->send(kLeader, kTag, packed(stage, state));
    }
    return own;
  }
  for (int rank = 1; rank < others_->ranks(); ++rank) {
    const auto count = others_->receive({rank}, kTag).at(0).item<int>();
    for (int i = 0; i < count; ++i) {
      own.insert(unpacked(others_->receive({rank}, kTag)));
    }
  }
  return own;
}

}  // namespace cleave
