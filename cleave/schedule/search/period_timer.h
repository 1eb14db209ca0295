#pragma once

#include <optional>
#include <vector>

#include "cleave/schedule/simulate.h"

namespace cleave {

// Compute actions as numbers, in each rank's order: what the search turns over
// and over.
using NumberedRow = std::vector<int>;
using NumberedRows = std::vector<NumberedRow>;

// Scores the rows of one problem, many of them one after the other: flat arrays
// and no maps. period() (simulate.h) is the same for one checked schedule of
// one replica that does not clip.
class PeriodTimer {
 public:
  // REQUIRES: `costs` has an entry for every stage of the placement, which
  // gives each one's rank.
  PeriodTimer(const std::vector<Rank>& placement,
              int microbatches,
              const ScheduleCosts& costs);

  int number(const Action& action) const;
  Action action(int number) const;

  // The compute of the rows; messages are left out.
  NumberedRows numbered(const std::vector<Row>& rows) const;

  // The time from step to step; nothing when the rows can never end. Every row
  // must be of the placement and in the order of the microbatches.
  std::optional<Seconds> period(const NumberedRows& rows);

  // Of one rank, in one step: what it computes and updates.
  Seconds work(Rank rank) const;

  // ---- about the rows last timed ----

  // Actions of one row, one after the other, each waiting for the one before.
  struct Block {
    int rank;
    int first;  // position in the row
    int last;
  };

  // The circuit that makes the period as long as it is: the period can fall
  // only where one of these blocks changes.
  std::vector<Block> critical_blocks(const NumberedRows& rows) const;

  // From each rank's start to its own end, all ranks together: falls where a
  // circuit gets shorter that is not yet, or not alone, the longest.
  Seconds sum_of_steps() const;

 private:
  // An action behind all that it waits for.
  struct Timed {
    int rank;
    int number;
    int need;  // on another rank; -1: none
    double travel;
    double duration;
  };

  int need_of(int number) const;
  Timed timed(int number) const;
  void start_over(const NumberedRows& rows);
  bool arrange(const NumberedRows& rows);
  void follow_ways();
  double greatest_mean();
  std::vector<int> critical_ranks() const;
  void add_blocks(const NumberedRows& rows,
                  int from,
                  int to,
                  std::vector<Block>& blocks) const;

  int ranks_ = 0;
  int stages_ = 0;
  int microbatches_ = 0;
  ScheduleCosts costs_;
  std::vector<int> rank_of_;           // by stage
  std::vector<int> last_gradient_;     // by stage: the number that updates
                                       // come behind
  std::vector<double> update_behind_;  // by number: time of the update
  std::vector<int> need_;              // by number: what must have run, or -1
  std::vector<Timed> timed_;           // by number; B as where there is W
  std::vector<Timed> order_;           // of the rows last arranged
  std::vector<char> has_weight_;       // by stage and microbatch
  std::vector<char> done_;             // by number
  std::vector<int> waiting_;   // by number: the rank that needs it, or -1
  std::vector<int> position_;  // by rank: how far it has come
  std::vector<int> runnable_;  // ranks that may go on
  std::vector<int> place_;     // by number: position in its row
  // The longest ways through a step: from the start of every rank to the end
  // of an action, and to the end of a rank.
  std::vector<double> way_to_action_;
  std::vector<double> way_to_rank_;
  // The longest ways of so many steps that end at a rank, and where each comes
  // from; `slowest_` ends the one that shows the greatest mean.
  std::vector<double> longest_;
  std::vector<int> longest_from_;
  int slowest_ = 0;
};

}  // namespace cleave
