#include "cleave/plan/rehearsal.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

// Steps: so many at least, and more until they have taken long enough. What
// else happens on the machine for a moment then weighs less.
constexpr int kLeastSteps = 3;
constexpr int kMostSteps = 20;
constexpr std::chrono::milliseconds kLongEnough{300};

// Rounds that take longer need more than caches hold, and find the same there
// wherever they are.
constexpr Seconds kNeverInCaches{0.02};
constexpr int kMovingSteps = 4;

constexpr int kMicrobatches = 4;  // of a step

// Hands on what it is given, and has nothing to update.
struct Nothing : torch::nn::Module {
  static at::Tensor forward(const at::Tensor& value) { return value; }
};

bool are_alike(const Values& some, const Values& others) {
  return std::ranges::equal(
      some, others, [](const at::Tensor& one, const at::Tensor& other) {
        return one.defined() == other.defined() &&
               (!one.defined() ||
                (one.sizes() == other.sizes() && one.dtype() == other.dtype() &&
                 one.requires_grad() == other.requires_grad()));
      });
}

Seconds median_of(std::vector<Seconds> times) {
  if (times.empty()) {
    return {};
  }
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::ranges::nth_element(times, middle);
  return *middle;
}

void add_shares_of_median(const std::vector<Seconds>& times,
                          std::vector<double>& shares) {
  const Seconds median = median_of(times);
  for (const Seconds time : times) {
    shares.push_back(median > Seconds{} ? std::abs(time / median - 1) : 0);
  }
}

// Twice what three in four of them are at most: so much are nearly all.
double most_of(std::vector<double> shares) {
  const auto place = shares.begin() + std::ssize(shares) * 3 / 4;
  std::ranges::nth_element(shares, place);
  return std::min(1.0, 2 * *place);
}

}  // namespace

// Its share of the update too.
Seconds Rehearsal::time_of_turn(const Times& rounds) {
  return median_of(rounds.forward) + median_of(rounds.backward) +
         median_of(rounds.weight) + median_of(rounds.update) / kMicrobatches;
}

Rehearsal::Rehearsal(const Model& model,
                     const Batch& batch,
                     const ProfileOptions& options,
                     int in_flight,
                     std::shared_ptr<DeviceMemory> memory)
    : model_(model),
      nothing_("nothing"),
      batch_(batch),
      options_(options),
      in_flight_(in_flight),
      memory_(std::move(memory)) {
  nothing_.add<Nothing>("nothing");
  nothing_.add<Nothing>("end");
}

void Rehearsal::add(int first, int end, int kind, const Values& inputs) {
  actors_.push_back(
      {kind,
       inputs,
       {},
       std::make_unique<Trial>(model_, first, end, options_, memory_)});
  actors_.push_back(
      {kNothing,
       {at::zeros({1}).requires_grad_()},
       {},
       std::make_unique<Trial>(nothing_, 0, 1, options_, memory_)});
}

void Rehearsal::have_turns(std::vector<Seconds> Times::*part, const Act& act) {
  if (seat_ != nullptr) {
    seat_->change();
  }
  Seconds all;
  for (Actor& actor : actors_) {
    const Seconds taken = act(actor);
    (times_[actor.kind].*part).push_back(taken);
    all += taken;
  }
  (rounds_.*part).push_back(all);
}

// Those who do nothing are between the layers, and have nothing to hand on.
void Rehearsal::forward(Microbatch microbatch) {
  Values made;  // by the layer before
  have_turns(&Times::forward, [&](Actor& actor) {
    const bool is_layer = actor.kind != kNothing;
    Values inputs = is_layer && are_alike(made, actor.inputs)
                        ? std::move(made)
                        : copies_of(actor.inputs);
    auto [outputs, taken] = actor.trial->forward(
        microbatch, std::move(inputs), batch_, options_.loss);
    if (actor.seeds.empty()) {
      actor.seeds = ones_for(outputs);
    }
    if (is_layer) {
      made = std::move(outputs);
    }
    return taken;
  });
}

// This and the next go from the last layer to the first.
void Rehearsal::backward(Microbatch microbatch) {
  Values found;  // by the layer behind
  actors_.reverse();
  have_turns(&Times::backward, [&](Actor& actor) {
    const bool is_layer = actor.kind != kNothing;
    Values gradients = is_layer && are_alike(found, actor.seeds)
                           ? std::move(found)
                           : copies_of(actor.seeds);
    auto [entered, taken] =
        actor.trial->backward(microbatch, std::move(gradients));
    if (is_layer) {
      found = std::move(entered);
    }
    return taken;
  });
  actors_.reverse();
}

void Rehearsal::weights(Microbatch microbatch) {
  actors_.reverse();
  have_turns(&Times::weight,
             [&](Actor& actor) { return actor.trial->weights(microbatch); });
  actors_.reverse();
}

void Rehearsal::take_step(int microbatches) {
  for (int turn = 0; turn < microbatches + in_flight_ - 1; ++turn) {
    if (turn < microbatches) {
      forward({turn});
    }
    if (turn >= in_flight_ - 1) {
      backward({turn - in_flight_ + 1});
      weights({turn - in_flight_ + 1});
    }
  }
  have_turns(&Times::update,
             [](Actor& actor) { return actor.trial->update(); });
}

// Of all the rounds.
Rehearsal::Times Rehearsal::take_steps(int least, int most) {
  times_.clear();
  rounds_ = {};
  const Clock::time_point end = Clock::now() + kLongEnough;
  for (int step = 0; step < least || (step < most && Clock::now() < end);
       ++step) {
    take_step(kMicrobatches);
  }
  return rounds_;
}

// What a round takes beside the medians of those who had their turns.
Seconds Rehearsal::beside_turns(std::vector<Seconds> Times::*part) const {
  Seconds turns;
  for (const Actor& actor : actors_) {
    turns += median_of(times_.at(actor.kind).*part);
  }
  return std::max(Seconds{}, median_of(rounds_.*part) - turns);
}

// By what share these rounds take longer where the seat always changes. All
// devices take the same steps, or none.
double Rehearsal::cost_of_moving(const Times& staying, Seat& seat) {
  const Seconds turn = time_of_turn(staying);
  if (!seat.all(turn > Seconds{} && turn < kNeverInCaches)) {
    return 0;
  }
  seat_ = &seat;
  const Times moving = take_steps(kMovingSteps, kMovingSteps);
  seat_ = nullptr;
  return std::clamp(time_of_turn(moving) / turn - 1, 0.0, 1.0);
}

Rehearsed Rehearsal::run(Seat& seat) {
  take_step(in_flight_);  // the first turns also allocate and compile
  const Times staying = take_steps(kLeastSteps, kMostSteps);
  std::vector<double> shares;
  for (const auto& part : {staying.forward, staying.backward, staying.weight}) {
    add_shares_of_median(part, shares);
  }
  Rehearsed found{.spread = most_of(std::move(shares))};
  for (const auto& [kind, times] : times_) {
    found.times[kind] = {median_of(times.forward),
                         median_of(times.backward),
                         median_of(times.weight),
                         median_of(times.update)};
  }
  found.beside = {beside_turns(&Times::forward),
                  beside_turns(&Times::backward),
                  beside_turns(&Times::weight),
                  beside_turns(&Times::update)};
  found.moving = cost_of_moving(staying, seat);
  return found;
}

}  // namespace cleave
