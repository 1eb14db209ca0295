#include "cleave/plan/rehearsal.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

// Turns of every layer: so many at least, and more until they have taken long
// enough. What else happens on the machine for a moment then weighs less.
constexpr int kLeastTurns = 5;
constexpr int kMostTurns = 50;
constexpr std::chrono::milliseconds kLongEnough{300};

// Has one number to update, and hands on what it is given.
struct Nothing : torch::nn::Module {
  Nothing() : number(register_parameter("number", at::zeros({1}))) {
    number.mutable_grad() = at::zeros({1});
  }

  static at::Tensor forward(const at::Tensor& value) { return value; }

  at::Tensor number;
};

Seconds median_of(std::vector<Timing>& timings, Seconds Timing::*part) {
  const auto middle = timings.begin() + std::ssize(timings) / 2;
  std::nth_element(
      timings.begin(),
      middle,
      timings.end(),
      [&](const Timing& a, const Timing& b) { return a.*part < b.*part; });
  return (*middle).*part;
}

Timing medians_of(std::vector<Timing> timings) {
  return {median_of(timings, &Timing::forward),
          median_of(timings, &Timing::backward),
          median_of(timings, &Timing::weight),
          median_of(timings, &Timing::update),
          timings.back().kept_for_weights,
          timings.back().working,
          timings.back().backward_need,
          timings.back().weight_need};
}

}  // namespace

Rehearsal::Rehearsal(const Model& model,
                     const Batch& batch,
                     const ProfileOptions& options,
                     std::shared_ptr<DeviceMemory> memory)
    : model_(model),
      nothing_("nothing"),
      batch_(batch),
      options_(options),
      memory_(std::move(memory)) {
  nothing_.add<Nothing>("nothing");
  nothing_.add<Nothing>("end");
}

void Rehearsal::add(int layer, int kind, const Values& inputs) {
  actors_.push_back(
      {kind,
       inputs,
       std::make_unique<Trial>(model_, layer, options_, memory_)});
  actors_.push_back({kNothing,
                     {at::zeros({1}).requires_grad_()},
                     std::make_unique<Trial>(nothing_, 0, options_, memory_)});
}

void Rehearsal::have_turns() {
  for (Actor& actor : actors_) {
    actor.trial->forward(actor.inputs, batch_, options_.loss);
  }
  for (auto actor = actors_.rbegin(); actor != actors_.rend(); ++actor) {
    actor->trial->backward();
  }
  for (auto actor = actors_.rbegin(); actor != actors_.rend(); ++actor) {
    actor->trial->weights();
  }
  for (Actor& actor : actors_) {
    actor.trial->update();
  }
}

std::map<int, Timing> Rehearsal::run() {
  have_turns();  // the first ones also allocate and compile
  std::map<int, std::vector<Timing>> timings;
  const Clock::time_point end = Clock::now() + kLongEnough;
  for (int turn = 0;
       turn < kLeastTurns || (turn < kMostTurns && Clock::now() < end);
       ++turn) {
    have_turns();
    for (const Actor& actor : actors_) {
      timings[actor.kind].push_back(actor.trial->timing());
    }
  }
  std::map<int, Timing> found;
  for (auto& [kind, all] : timings) {
    found[kind] = medians_of(std::move(all));
  }
  return found;
}

}  // namespace cleave
