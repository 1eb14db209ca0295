#include "cleave/plan/rehearsal.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>

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

// What a step has for every microbatch.
constexpr auto kTurnParts = {
    &Timing::forward, &Timing::backward, &Timing::weight};

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
          median_of(timings, &Timing::update)};
}

// Twice what three in four of the rounds differ from their median at most: so
// much do nearly all.
double spread_of(std::vector<Timing>& rounds) {
  std::vector<double> shares;
  for (const auto part : kTurnParts) {
    const Seconds median = median_of(rounds, part);
    for (const Timing& round : rounds) {
      shares.push_back(median > Seconds{} ? std::abs((round.*part) / median - 1)
                                          : 0);
    }
  }
  const auto of_most = shares.begin() + std::ssize(shares) * 3 / 4;
  std::ranges::nth_element(shares, of_most);
  return std::min(1.0, 2 * *of_most);
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

void Rehearsal::add(int first, int end, int kind, const Values& inputs) {
  actors_.push_back(
      {kind,
       inputs,
       std::make_unique<Trial>(model_, first, end, options_, memory_)});
  actors_.push_back(
      {kNothing,
       {at::zeros({1}).requires_grad_()},
       std::make_unique<Trial>(nothing_, 0, 1, options_, memory_)});
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

Rehearsed Rehearsal::run() {
  have_turns();  // the first ones also allocate and compile
  std::map<int, std::vector<Timing>> timings;
  std::vector<Timing> rounds;
  const Clock::time_point end = Clock::now() + kLongEnough;
  for (int turn = 0;
       turn < kLeastTurns || (turn < kMostTurns && Clock::now() < end);
       ++turn) {
    have_turns();
    Timing& round = rounds.emplace_back();
    for (const Actor& actor : actors_) {
      const Timing& timing = actor.trial->timing();
      timings[actor.kind].push_back(timing);
      for (const auto part : kTurnParts) {
        round.*part += timing.*part;
      }
    }
  }
  Rehearsed found{.spread = spread_of(rounds)};
  for (auto& [kind, all] : timings) {
    found.times[kind] = medians_of(std::move(all));
  }
  return found;
}

}  // namespace cleave
