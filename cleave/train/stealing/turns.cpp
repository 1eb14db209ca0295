#include "cleave/train/stealing/turns.h"

#include <algorithm>

namespace cleave {

void Turns::open(Rank rank, std::int64_t step, const SharedRow& row) {
  rows_.at(rank.value) = {
      .row = &row, .step = step, .ended = std::vector<bool>(row.units.size())};
}

std::optional<Turn> Turns::begin(Rank by, const Arrived& arrived) {
  std::optional<Turn> turn = find(by, by, arrived);
  if (!turn) {
    turn = find_to_steal(by, arrived);
  }
  if (turn) {
    OpenRow& open = rows_[turn->row.value];
    ++open.next;
    ++open.running;
    busy_[by.value] = true;
  }
  return turn;
}

void Turns::end(const Turn& turn) {
  OpenRow& open = rows_[turn.row.value];
  open.ended[turn.unit] = true;
  --open.running;
  busy_[turn.by.value] = false;
}

bool Turns::has_ended(Rank rank) const {
  const OpenRow& open = rows_.at(rank.value);
  return open.running == 0 && open.next == std::ssize(open.ended);
}

const WorkUnit& Turns::next(Rank rank) const {
  const OpenRow& open = rows_.at(rank.value);
  return open.row->units.at(open.next);
}

const WorkUnit& Turns::at(const Turn& turn) const {
  return rows_[turn.row.value].row->units[turn.unit];
}

std::optional<Turn> Turns::find(Rank by,
                                Rank row,
                                const Arrived& arrived) const {
  const OpenRow& open = rows_[row.value];
  const Turn turn{by, row, open.step, open.next};
  return open.next < std::ssize(open.ended) && can_begin(turn, arrived)
             ? std::optional(turn)
             : std::nullopt;
}

std::optional<Turn> Turns::find_to_steal(Rank by,
                                         const Arrived& arrived) const {
  const auto progress = [](const Turn& turn, std::size_t units) {
    return std::pair(
        turn.step, static_cast<double>(turn.unit) / static_cast<double>(units));
  };
  std::optional<Turn> best;
  for (Rank row; row.value < std::ssize(rows_); ++row.value) {
    const auto turn = busy_[row.value] ? find(by, row, arrived) : std::nullopt;
    if (turn &&
        (!best || progress(*turn, rows_[row.value].ended.size()) <
                      progress(*best, rows_[best->row.value].ended.size()))) {
      best = turn;
    }
  }
  return best;
}

bool Turns::can_begin(const Turn& turn, const Arrived& arrived) const {
  const OpenRow& open = rows_[turn.row.value];
  const WorkUnit& unit = open.row->units[turn.unit];
  return std::ranges::all_of(
             unit.needs, [&](int need) { return bool{open.ended[need]}; }) &&
         has_room(turn) && (unit.receives.empty() || arrived(turn));
}

// What runs beside the first unit that has not ended may add no more than the
// slack. The first one needs what it needs in order, which is always allowed.
bool Turns::has_room(const Turn& turn) const {
  const OpenRow& open = rows_[turn.row.value];
  const auto first = std::ranges::find(open.ended, false) - open.ended.begin();
  Bytes beside;
  for (auto unit = first + 1; unit <= turn.unit; ++unit) {
    if (!open.ended[unit]) {
      beside += std::max(Bytes{}, open.row->units[unit].memory);
    }
  }
  return turn.unit == first || beside <= open.row->slack;
}

}  // namespace cleave
