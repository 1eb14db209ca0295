#include "cleave/plan/measure/rehearsal.h"

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
constexpr int kManySteps = 20;
constexpr std::chrono::seconds kLongEnough{2};

// Rounds that take longer need more than caches hold, and find the same there
// wherever they are.
constexpr Seconds kNeverInCaches{0.02};
constexpr int kMovingSteps = 4;
constexpr int kForeignSteps = 12;

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
       /*follows=*/false,
       inputs,
       {},
       std::make_unique<Trial>(model_, first, end, options_, memory_),
       {}});
  actors_.push_back({kNothing,
                     /*follows=*/false,
                     {at::zeros({1}).requires_grad_()},
                     {},
                     std::make_unique<Trial>(nothing_, 0, 1, options_, memory_),
                     {}});
}

void Rehearsal::have_turns(Part part, const Act& act) {
  if (manner_.changing != nullptr) {
    manner_.changing->change();
  }
  Seconds all;
  for (Actor& actor : actors_) {
    const Seconds taken = act(actor);
    (actor.times.*part).push_back(taken);
    all += taken;
  }
  (rounds_.*part).push_back(all);
}

// Those who do nothing are between the layers, and have nothing to hand on.
void Rehearsal::forward(Microbatch microbatch) {
  Values made;  // by the layer before
  have_turns(&Times::forward, [&](Actor& actor) {
    const bool is_layer = actor.kind != kNothing;
    actor.follows = is_layer && are_alike(made, actor.inputs);
    Values inputs = actor.follows ? std::move(made) : copies_of(actor.inputs);
    Seconds receiving;
    if (&actor == receives_) {
      receiving = swap(Channel::values, microbatch, inputs);
    }
    auto [outputs, taken] = actor.trial->forward(
        microbatch, std::move(inputs), batch_, options_.loss);
    if (actor.seeds.empty()) {
      actor.seeds = ones_for(outputs);
    }
    if (is_layer) {
      made = std::move(outputs);
    }
    return taken + receiving;
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
    Seconds receiving;
    if (&actor == receives_) {
      receiving = swap(Channel::gradients, microbatch, entered);
    }
    if (is_layer) {
      found = std::move(entered);
    }
    return taken + receiving;
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

// What this device made goes to a neighbour, and what comes from the other one
// takes its place; how long that takes once it is there. Values go one way
// around, gradients the other.
Seconds Rehearsal::swap(Channel channel,
                        Microbatch microbatch,
                        Values& values) {
  Transport& others = *manner_.others;
  const int all = others.ranks();
  const int next = (others.rank().value + 1) % all;
  const int previous = (others.rank().value + all - 1) % all;
  const bool onward = channel == Channel::values;
  const Tag tag{channel, 0, microbatch};
  others.send({onward ? next : previous}, tag, std::move(values));
  values = others.receive({onward ? previous : next}, tag);
  const Clock::time_point start = Clock::now();
  for (at::Tensor& value : values) {
    value = received(std::move(value));
  }
  const std::chrono::duration<double> spent = Clock::now() - start;
  return {spent.count()};
}

void Rehearsal::forget_times() {
  for (Actor& actor : actors_) {
    actor.times = {};
  }
  rounds_ = {};
}

// Of all the rounds.
Rehearsal::Times Rehearsal::take_steps(int steps, Manner manner) {
  forget_times();
  manner_ = manner;
  receives_ = manner.others != nullptr ? receiver() : nullptr;
  for (int step = 0; step < steps; ++step) {
    take_step(kMicrobatches);
  }
  manner_ = {};
  receives_ = nullptr;
  return rounds_;
}

// As many as this device needs, and further ones while others need theirs: they
// shall not find more room in caches, memory and power than in training.
void Rehearsal::take_steps_with_all(Seat& seat) {
  seat.all(true);
  forget_times();
  const Clock::time_point end = Clock::now() + kLongEnough;
  const auto has_enough = [&](int steps) {
    return steps >= kLeastSteps &&
           (steps >= kManySteps || Clock::now() >= end) &&
           seat.have_all_enough();
  };
  for (int steps = 0; !has_enough(steps); ++steps) {
    take_step(kMicrobatches);
  }
}

// Of those that take what the layer before makes, one of those that take most:
// the one in their middle. Null where none takes any.
Rehearsal::Actor* Rehearsal::receiver() {
  std::vector<Actor*> found;
  Bytes most;
  for (Actor& actor : actors_) {
    const Bytes bytes = actor.follows ? bytes_of(actor.inputs) : Bytes{};
    if (bytes > most) {
      most = bytes;
      found.clear();
    }
    if (actor.follows && bytes == most) {
      found.push_back(&actor);
    }
  }
  return found.empty() ? nullptr : found[found.size() / 2];
}

// The median of all turns of the kind, wherever in a round they are.
Seconds Rehearsal::time_of(int kind, Part part) const {
  std::vector<Seconds> times;
  for (const Actor& actor : actors_) {
    if (actor.kind == kind) {
      const std::vector<Seconds>& own = actor.times.*part;
      times.insert(times.end(), own.begin(), own.end());
    }
  }
  return median_of(std::move(times));
}

// By what factor layers take longer than in their medians in whole rounds, of
// which nearly each has a turn that takes longer.
double Rehearsal::longer_in_rounds(Part part) const {
  const Seconds nothing = time_of(kNothing, part);
  Seconds turns;
  Seconds layers;
  for (const Actor& actor : actors_) {
    const Seconds median = median_of(actor.times.*part);
    turns += median;
    layers += std::max(Seconds{}, median - nothing);
  }
  const Seconds longer = std::max(Seconds{}, median_of(rounds_.*part) - turns);
  return layers > Seconds{} ? 1 + longer / layers : 1;
}

// What turns take longer in their places than others of their kind.
Seconds Rehearsal::beside_turns(Part part) const {
  Seconds longer;
  for (const Actor& actor : actors_) {
    longer += median_of(actor.times.*part) - time_of(actor.kind, part);
  }
  return std::max(Seconds{}, longer);
}

// By what share a round takes longer than this where the seat always changes.
double Rehearsal::cost_of_moving(Seconds turn, Seat& seat) {
  const Times moving = take_steps(kMovingSteps, {.changing = &seat});
  return std::clamp(time_of_turn(moving) / turn - 1, 0.0, 1.0);
}

// Steps that send and steps that do not take turns: the machine may change.
ForeignCost Rehearsal::cost_of_foreign(Transport& others) {
  Times own;
  Times foreign;
  const auto add = [](const Times& some, Times& all) {
    for (const auto part : {&Times::forward, &Times::backward}) {
      (all.*part).insert(
          (all.*part).end(), (some.*part).begin(), (some.*part).end());
    }
  };
  for (int step = 0; step < kForeignSteps; ++step) {
    add(take_steps(1, {}), own);
    add(take_steps(1, {.others = &others}), foreign);
  }
  const auto longer = [&](Part part) {
    return std::max(Seconds{}, median_of(foreign.*part) - median_of(own.*part));
  };
  return {receiver() != nullptr ? bytes_of(receiver()->inputs) : Bytes{},
          longer(&Times::forward),
          longer(&Times::backward)};
}

Rehearsed Rehearsal::run(Seat& seat, Transport& others) {
  take_step(in_flight_);  // the first turns also allocate and compile
  take_steps_with_all(seat);
  const Times staying = rounds_;
  std::vector<double> shares;
  for (const auto& part : {staying.forward, staying.backward, staying.weight}) {
    add_shares_of_median(part, shares);
  }
  Rehearsed found{.spread = most_of(std::move(shares))};
  for (const auto& [time, part] : kParts) {
    const Seconds nothing = time_of(kNothing, part);
    const double longer = longer_in_rounds(part);
    for (const Actor& actor : actors_) {
      found.times[actor.kind].*time =
          nothing + longer * (time_of(actor.kind, part) - nothing);
    }
    found.beside.*time = beside_turns(part);
  }
  // All devices take the same steps, or none.
  const Seconds turn = time_of_turn(staying);
  if (seat.all(others.ranks() > 1 && turn > Seconds{} &&
               turn < kNeverInCaches)) {
    found.moving = cost_of_moving(turn, seat);
    found.foreign = cost_of_foreign(others);
  }
  return found;
}

}  // namespace cleave
