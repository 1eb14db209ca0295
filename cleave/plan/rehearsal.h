#pragma once

#include <list>
#include <map>
#include <memory>
#include <vector>

#include "cleave/plan/trial.h"

// For the profiler only.
namespace cleave {

// What a rehearsal found.
struct Rehearsed {
  std::map<int, Timing> times;  // by kind, medians
  double spread = 0;            // of whole rounds of turns, as in a Profile
};

// Layers that have their turns one after the other, as in a stage: each finds
// in the caches what a stage of all of them would leave there.
class Rehearsal {
 public:
  // The arguments must outlive it.
  Rehearsal(const Model& model,
            const Batch& batch,
            const ProfileOptions& options,
            std::shared_ptr<DeviceMemory> memory);

  // The layers from `first` up to `end`, as one stage, behind those that were
  // added before. `kind` is any number but kNothing, the same for those that
  // must cost the same.
  void add(int first, int end, int kind, const Values& inputs);

  // Every layer has several turns. Under kNothing is what a stage costs that
  // has nothing to do.
  Rehearsed run();
  static constexpr int kNothing = -1;

 private:
  struct Actor {
    int kind;
    Values inputs;
    std::unique_ptr<Trial> trial;
  };

  void have_turns();

  const Model& model_;
  Model nothing_;
  const Batch& batch_;
  const ProfileOptions& options_;
  std::shared_ptr<DeviceMemory> memory_;
  std::list<Actor> actors_;
};

}  // namespace cleave
