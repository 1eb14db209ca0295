#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cleave/schedule/schedule.h"

namespace cleave {

// Where in a schedule an action stands.
struct Place {
  Rank rank;
  int position = 0;  // in the rank's row

  auto operator<=>(const Place&) const = default;
};

// What must have run before what. The one description of a pipeline's order:
// the passes, the validator and the simulator read it. Takes any schedule,
// also a broken one. Keeps a reference to it.
class Order {
 public:
  explicit Order(const Schedule& schedule);

  // Where the action stands; of several places the first.
  std::optional<Place> place(const Action& action) const;

  // The rank that has the stage; of several the one that does most of it.
  std::optional<Rank> owner(StageId stage) const;

  // Whether the backward of this microbatch leaves the weight gradients to a W.
  bool is_split(StageId stage, Microbatch microbatch) const;

  // Whether values between `stage` and the next one change ranks.
  bool crosses(StageId stage) const;

  // The messages that belong to a compute action: what it receives before, and
  // what it sends behind.
  std::optional<Action> received_for(const Action& action) const;
  std::optional<Action> sent_after(const Action& action) const;

  bool has_messages() const { return has_messages_; }

  // False: nothing goes back, as when a network is judged and not trained.
  bool has_backward() const { return has_backward_; }

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
  std::unordered_map<int, Rank> owners_;  // by stage
  bool has_messages_ = false;
  bool has_backward_ = false;
};

}  // namespace cleave
