#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cleave/schedule/memory.h"
#include "cleave/schedule/schedule.h"
#include "cleave/units.h"

// Devices of one process share its memory, so one that has to wait can do the
// next action of another's row instead: it lends a hand. Where no row's next
// action can begin, one a little further on is done before its time. What adds
// to the same numbers still does so in the row's order, whoever does it when,
// so that sums keep their bits.
namespace cleave {

// A compute action of a row that several may work on, with its messages.
struct SharedAction {
  Action action;
  std::vector<int> needs;  // places in the same row that must have ended before
  std::optional<Action> receive;  // what it computes with, where that comes by
                                  // message
  std::optional<Action> send;     // what it found, where that goes by message
  MemoryUse memory;
  Bytes kept_before;   // by the row, where all is done in order
  Bytes leaves;        // what then waits for the next to take it, in the row's
                       // memory, whether it goes by message or not
  Rank taken_from;     // the row whose memory it frees: when it begins,
  Bytes taken;         // of what it takes, and
  Bytes let_go;        // when it has ended, of what both had
  bool split = false;  // the microbatch has a W in this stage
  bool completes = false;  // the last to add to its stage's gradients
};

// A rank's row, as those see it that work on it.
struct SharedRow {
  std::vector<SharedAction> actions;
  // What it may need beside what waits: nothing begins before its time where
  // what it overtakes would then need more. At least what the row needs where
  // all is done in order.
  Bytes bound;
  // What it may need with all that waits: nothing begins where it would need
  // more at once, or, before its time, where what it overtakes would for this
  // reason, unless nobody could do anything then.
  Bytes limit;
  bool in_order = false;  // nothing begins before its time
};

// The rows of a schedule. Of a stage, two actions of the same kind never run at
// the same time: its modules need not be thread-safe.
// `limits`: of each rank's row, its bound and its limit. REQUIRES: the schedule
// has no messages yet, and problems(schedule) is empty; one entry of `stages`
// per stage.
std::vector<SharedRow> shared_rows(const Schedule& schedule,
                                   const std::vector<StageBytes>& stages,
                                   const std::vector<Bytes>& limits);

// An action that has begun, or could.
struct Turn {
  Rank who;  // does it
  Rank row;
  std::int64_t step = 0;
  int place = 0;  // in the row
};

// Who does what next. Ranks may be in different steps. Not thread-safe.
class Turns {
 public:
  // Whether the message is there that the turn's action waits for.
  using Arrived = std::function<bool(const Turn&)>;

  explicit Turns(int ranks)
      : rows_(ranks), busy_(ranks), waiting_(ranks), most_(ranks) {}

  // A rank starts its row of a step, which must stay until it opens the next.
  // REQUIRES: its last one has ended.
  void open(Rank rank, std::int64_t step, const SharedRow& row);

  // Begins what this rank should do: the next action of its own row, or else,
  // of the rows whose ranks are busy, of the one that is furthest behind; where
  // there is none, the same among the actions a little further on. None where
  // none can begin. `helps`: whether to look at others' rows; not needed where
  // another rank has just found nothing there. REQUIRES: it has ended what it
  // began before.
  std::optional<Turn> begin(Rank who,
                            const Arrived& arrived,
                            bool helps = true);

  void end(const Turn& turn);

  bool has_ended(Rank rank) const;

  // Whether every rank has come to the end of its row of that step.
  bool have_all_ended(std::int64_t step) const;

  // Whether any of the row's actions has begun and not ended.
  bool is_worked_on(Rank rank) const {
    return rows_.at(rank.value).running > 0;
  }

  // The most that the rank has needed so far, in all its rows.
  Bytes most_needed(Rank rank) const { return most_.at(rank.value); }

  // What begins next in the row. REQUIRES: something does.
  const SharedAction& next(Rank rank) const;

  const SharedAction& at(const Turn& turn) const;

 private:
  struct OpenRow {
    const SharedRow* row = nullptr;
    std::int64_t step = 0;
    int next = 0;      // the first that has not begun
    int furthest = 0;  // that has begun
    int running = 0;   // have begun and not ended
    std::vector<bool> begun;
    std::vector<bool> ended;
    Bytes kept;
    Bytes needed;  // by those that run
  };

  // Smaller where a row is further behind.
  static std::pair<std::int64_t, double> progress(const OpenRow& row);
  bool fits(const Turn& turn) const;
  bool leaves_room(const Turn& turn) const;
  bool is_ready(const Turn& turn, const Arrived& arrived) const;
  bool is_stuck(Rank who, const Arrived& arrived) const;

  // What the rank could begin in the row, among its next `ahead` actions.
  std::optional<Turn> find(Rank who,
                           Rank row,
                           int ahead,
                           const Arrived& arrived) const;
  std::optional<Turn> find_to_help(Rank who,
                                   int ahead,
                                   const Arrived& arrived) const;
  std::optional<Turn> find_over_limit(Rank who, const Arrived& arrived) const;
  void note_begin(const Turn& turn);
  void note_need(Rank rank);

  std::vector<OpenRow> rows_;
  std::vector<bool> busy_;      // by rank, as all below
  std::vector<Bytes> waiting_;  // that its actions left, of all steps
  std::vector<Bytes> most_;
};

}  // namespace cleave
