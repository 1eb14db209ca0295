#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cleave/train/stealing/shared_rows.h"

namespace cleave {

// A unit that has begun, or could.
struct Turn {
  Rank by;  // runs it
  Rank row;
  std::int64_t step = 0;
  int unit = 0;  // of the row
};

// Which rank runs what next. Units of a row begin in its order, each by the
// rank of the row or by another one that has nothing to do. Ranks may be in
// different steps. Not thread-safe.
class Turns {
 public:
  // Whether all has arrived that the unit receives.
  using Arrived = std::function<bool(const Turn&)>;

  explicit Turns(int ranks) : rows_(ranks), busy_(ranks) {}

  // A rank starts its row of a step, which must stay until it opens the next.
  // REQUIRES: its last one has ended.
  void open(Rank rank, std::int64_t step, const SharedRow& row);

  // Begins what this rank should do: the next unit of its own row, or else, of
  // the rows whose ranks are busy, of the one that is furthest behind. None
  // where none can begin. REQUIRES: it has ended what it began before.
  std::optional<Turn> begin(Rank by, const Arrived& arrived);

  void end(const Turn& turn);

  bool has_ended(Rank rank) const;

  // Whether any unit of the row runs.
  bool is_worked_on(Rank rank) const {
    return rows_.at(rank.value).running > 0;
  }

  // The unit that begins next in the row. REQUIRES: there is one.
  const WorkUnit& next(Rank rank) const;

  const WorkUnit& at(const Turn& turn) const;

 private:
  struct OpenRow {
    const SharedRow* row = nullptr;
    std::int64_t step = 0;
    int next = 0;     // the first unit that has not begun
    int running = 0;  // units
    std::vector<bool> ended;
  };

  bool can_begin(const Turn& turn, const Arrived& arrived) const;
  bool has_room(const Turn& turn) const;
  std::optional<Turn> find(Rank by, Rank row, const Arrived& arrived) const;
  std::optional<Turn> find_to_steal(Rank by, const Arrived& arrived) const;

  std::vector<OpenRow> rows_;
  std::vector<bool> busy_;  // by rank
};

}  // namespace cleave
