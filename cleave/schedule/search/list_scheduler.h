#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cleave/schedule/search/rows_scorer.h"

namespace cleave {

// How a rank chooses when several things are ready.
struct ListRule {
  enum class Turn { backward_first, forward_first, alternate };
  enum class Stage { latest, oldest_microbatch };

  Turn turn = Turn::backward_first;
  Stage stage = Stage::latest;  // of those ready on a rank
  // By stage: the most microbatches between their forward and their backward.
  std::vector<int> in_flight;
  // By rank: the most weight gradients put off; one more is done at once.
  std::vector<int> put_off;
  // Weight gradients fill a wait if at least this share of their time fits.
  double fit = 0;
  // A rank does no forward that its first backward would have to wait for.
  bool first_backward_at_once = false;
  std::vector<Bytes> limits;  // by rank, as in SearchProblem
};

// Many rules: with few and many microbatches under way, with weight gradients
// at once, when there is time, or last. Some are those of known schedules.
std::vector<ListRule> list_rules(const SearchProblem& problem);

// Makes rows as work comes up: each rank, when it is free, does what is ready,
// within its memory and by a rule. Made once for a problem and run many times.
class ListScheduler {
 public:
  // Keeps a reference to the scorer.
  explicit ListScheduler(RowsScorer& scorer);

  // Nothing where the memory does not hold a single microbatch, or the rule
  // brings the ranks to a halt.
  std::optional<NumberedRows> run(const ListRule& rule);

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Choice {
    int stage = -1;  // -1: none
    Op op = Op::forward;
    double time = kNever;  // when it can start
  };

  void reset(const ListRule& rule);
  double ready_forward(int stage) const;
  double ready_backward(int stage) const;
  std::int64_t most_kept(int stage) const;
  std::int64_t most_needed(int stage) const;
  bool has_room(int stage) const;
  bool is_better(const Choice& a, const Choice& b, int rank) const;
  Choice choose(int rank) const;
  Choice choose_weight(int rank) const;
  Choice first_backward(int rank) const;
  bool is_in_the_way(const Choice& ready, const Choice& backward) const;
  void perform(const Choice& choice, int rank);

  RowsScorer& scorer_;
  const SearchProblem& problem_;
  int stages_;
  int ranks_;
  std::vector<std::vector<int>> stages_of_;  // by rank, ascending

  const ListRule* rule_ = nullptr;
  NumberedRows rows_;
  double now_ = 0;
  std::vector<double> free_;           // by rank: when it can go on
  std::vector<char> last_forward_;     // by rank: what it last did
  std::vector<std::int64_t> held_;     // by rank: bytes
  std::vector<int> weights_left_;      // by rank: backwards without their W
  std::vector<int> forwards_;          // by stage: done so far
  std::vector<int> backwards_;         // by stage
  std::vector<int> weights_;           // by stage
  std::vector<double> forward_ends_;   // by stage and microbatch
  std::vector<double> backward_ends_;  // by stage and microbatch
};

}  // namespace cleave
