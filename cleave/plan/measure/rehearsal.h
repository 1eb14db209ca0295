#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cleave/comm/transport.h"
#include "cleave/plan/measure/rotation.h"
#include "cleave/plan/measure/trial.h"

// For the profiler only.
namespace cleave {

// What a rehearsal found.
struct Rehearsed {
  // By kind, medians; and their share of what whole rounds of turns take longer
  // than the medians of all turns.
  std::map<int, Timing> times;
  Timing beside;  // what turns of the same kind take longer in a round where
                  // others found other code and data in the caches
  double spread = 0;  // of whole rounds, and
  double moving = 0;  // on changing cores, as in a Profile
  ForeignCost foreign;
};

// Layers that have their turns one after the other, as in a stage, in steps of
// several microbatches: each takes what the one before made, and finds in the
// caches what a stage of all of them would leave there.
class Rehearsal {
 public:
  // `in_flight`: microbatches between forward and backward, at most. The other
  // arguments must outlive it.
  Rehearsal(const Model& model,
            const Batch& batch,
            const ProfileOptions& options,
            int in_flight,
            std::shared_ptr<DeviceMemory> memory);

  // The layers from `first` up to `end`, as one stage, behind those that were
  // added before. `kind` is any number but kNothing, the same for those that
  // must cost the same.
  void add(int first, int end, int kind, const Values& inputs);

  // Takes several steps while all devices do. Then some more, if that can
  // matter, in which `seat` changes before every round of turns, and some in
  // which devices hand on to `others` what they make in the middle of a round.
  // Under kNothing is what a stage costs that has nothing to do. `others`: as
  // many as there are seats.
  Rehearsed run(Seat& seat, Transport& others);
  static constexpr int kNothing = -1;

 private:
  // What turns took, one by one; the updates, step by step.
  struct Times {
    std::vector<Seconds> forward;
    std::vector<Seconds> backward;
    std::vector<Seconds> weight;
    std::vector<Seconds> update;
  };

  using Part = std::vector<Seconds> Times::*;

  struct Actor {
    int kind;
    bool follows = false;  // takes what the layer before makes
    Values inputs;         // where those of the layer before do not fit
    Values seeds;          // the same of gradients
    std::unique_ptr<Trial> trial;
    Times times;
  };

  static constexpr std::pair<Seconds Timing::*, Part> kParts[] = {
      {&Timing::forward, &Times::forward},
      {&Timing::backward, &Times::backward},
      {&Timing::weight, &Times::weight},
      {&Timing::update, &Times::update}};

  // What a trial does in its turn, and how long that takes it.
  using Act = std::function<Seconds(Actor&)>;

  // Steps in one of these ways.
  struct Manner {
    Seat* changing = nullptr;     // changes before every round
    Transport* others = nullptr;  // are sent what is made in its middle
  };

  static Seconds time_of_turn(const Times& rounds);
  Seconds time_of(int kind, Part part) const;
  double longer_in_rounds(Part part) const;
  Seconds beside_turns(Part part) const;
  double cost_of_moving(Seconds turn, Seat& seat);
  ForeignCost cost_of_foreign(Transport& others);
  Times take_steps(int steps, Manner manner);
  void take_steps_with_all(Seat& seat);
  void forget_times();
  void take_step(int microbatches);
  Actor* receiver();
  Seconds swap(Channel channel, Microbatch microbatch, Values& values);
  void have_turns(Part part, const Act& act);
  void forward(Microbatch microbatch);
  void backward(Microbatch microbatch);
  void weights(Microbatch microbatch);

  const Model& model_;
  Model nothing_;
  const Batch& batch_;
  const ProfileOptions& options_;
  int in_flight_;
  std::shared_ptr<DeviceMemory> memory_;
  std::list<Actor> actors_;
  Manner manner_;
  Actor* receives_ = nullptr;  // from others, if they are sent anything
  Times rounds_;               // of all that had their turns
};

}  // namespace cleave
