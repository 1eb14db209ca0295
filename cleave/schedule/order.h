#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cleave/schedule/op.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

// Where in a schedule an action stands.
struct Place {
  Rank rank;
  int position = 0;  // in the rank's row

  auto operator<=>(const Place&) const = default;
};

// What must have run before what in one schedule. The needs of op.h are written
// with it; pass, validator, simulator, memory and runners read them. Takes any
// schedule, also a broken one. Keeps a reference to it.
class Order {
 public:
  explicit Order(const Schedule& schedule);

  const Schedule& schedule() const { return schedule_; }

  // Where the action stands; of several places the first.
  std::optional<Place> place(const Action& action) const;
  bool has(const Action& action) const { return place(action).has_value(); }

  // The rank that has the stage; of several the one that does most of it.
  std::optional<Rank> owner(StageId stage) const;
  std::vector<StageId> stages_of(Rank rank) const;  // ascending

  // Whether the backward of this microbatch leaves the weight gradients to a W.
  bool is_split(StageId stage, int microbatch) const;

  // Whether the two are stages of different ranks.
  bool crosses(StageId from, StageId to) const;

  // Those stages of other ranks whose values this one reads, and that read its.
  std::vector<StageId> crossing_sources(StageId stage) const;
  std::vector<StageId> crossing_readers(StageId stage) const;

  // The last action that adds to the stage's gradients; none where nothing goes
  // back.
  std::optional<Action> completes(StageId stage) const;

  // False: a schedule of F, B and W alone, which a pass has still to complete.
  bool is_complete() const { return is_complete_; }

  // False: nothing goes back, as when a network is evaluated.
  bool has_backward() const { return has_backward_; }

  int ranks() const { return static_cast<int>(schedule_.rows.size()); }

  // What must have run before `action` can, whether the schedule has it or not.
  std::vector<Action> needs(const Action& action) const;

  // Where those of its needs stand that another rank has: what `rank` must wait
  // for before it can run `action`.
  std::vector<Place> waits_for(const Action& action, Rank rank) const;

  // Runs every row in its order as far as it goes: sends never block, an action
  // runs when all it waits for have run. Calls `visit` for each as it runs.
  // Returns each rank's first action that never could, or its row's length.
  std::vector<int> run(const std::function<void(Place)>& visit) const;

 private:
  struct ActionHash {
    std::size_t operator()(const Action& action) const;
  };

  const Schedule& schedule_;
  std::unordered_map<Action, Place, ActionHash> places_;
  std::unordered_map<int, Rank> owners_;       // by stage
  std::unordered_map<int, Action> completes_;  // by stage
  bool is_complete_ = false;
  bool has_backward_ = false;
};

}  // namespace cleave
