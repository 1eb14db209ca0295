#include "cleave/schedule/validate.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "cleave/error.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/order.h"

namespace cleave {
namespace {

std::string stage_text(StageId stage) {
  return "stage " + std::to_string(stage.value);
}

std::string rank_text(Rank rank) {
  return "rank " + std::to_string(rank.value);
}

// Collects the problems of one schedule. Each check takes for granted what
// another one reports, so that a mistake does not come back in many words.
class Validator {
 public:
  explicit Validator(const Schedule& schedule)
      : schedule_(schedule), order_(schedule) {
    for (int rank = 0; const Row& row : schedule.rows) {
      names_stages_.push_back(!has_only(row, StageId{rank}));
      ++rank;
    }
  }

  std::vector<Problem> run() {
    check_actions();
    check_microbatch_order();
    for (StageId stage; stage.value < schedule_.stages(); ++stage.value) {
      check_stage(stage);
    }
    if (order_.is_complete()) {
      check_completeness();
    }
    check_waits();
    std::ranges::stable_sort(problems_, {}, [](const Problem& problem) {
      return std::tuple(problem.rank, problem.position);
    });
    return std::move(problems_);
  }

 private:
  void report(Place place, std::string text) {
    problems_.push_back({place.rank, place.position, std::move(text)});
  }

  const Row& row_of(Rank rank) const { return schedule_.rows[rank.value]; }

  // As the rank's row spells it.
  std::string spell(const Action& action, Rank rank) const {
    return to_text(action, names_stages_[rank.value]);
  }

  // Whether the action adds to the gradients of the weights.
  bool sums_weights(const Action& action) const {
    return adds_gradients(action.op,
                          order_.is_split(action.stage, action.index));
  }

  void check_actions();
  void check_range(const Action& action, Place place);
  void check_order(const Action& action, Place place);
  void check_microbatch_order();
  void check_stage(StageId stage);
  void check_passes(StageId stage, Op op);
  void check_completeness();
  void report_missing(const std::vector<Action>& actions);
  void report_missing(StageId stage, Op op, int first, int last);
  void check_waits();

  const Schedule& schedule_;
  const Order order_;
  std::vector<bool> names_stages_;  // by rank: its row's text names them
  std::vector<Problem> problems_;
};

void Validator::check_actions() {
  for (Rank rank; rank.value < std::ssize(schedule_.rows); ++rank.value) {
    std::set<StageId> elsewhere;  // stages of this row that another rank has
    Place place{rank, 0};
    for (const Action& action : row_of(rank)) {
      const Rank owner = order_.owner(action.stage).value();
      if (owner != rank && !elsewhere.contains(action.stage)) {
        elsewhere.insert(action.stage);
        report(place, stage_text(action.stage) + " is on " + rank_text(owner));
      }
      const Place first = order_.place(action).value();
      if (first.rank == rank && first != place) {
        report(place, spell(action, rank) + " a second time");
      }
      check_range(action, place);
      check_order(action, place);
      ++place.position;
    }
  }
}

void Validator::check_range(const Action& action, Place place) {
  const auto check_one = [&](const std::string& what, int number, int count) {
    if (number < 0 || number >= count) {
      report(place,
             "there is no " + what + " " + std::to_string(number) +
                 ": there are " + std::to_string(count));
    }
  };
  check_one("stage", action.stage.value, schedule_.stages());
  if (traits(action.op).index == IndexOf::microbatch) {
    check_one("microbatch", action.index, schedule_.microbatches);
  }
  if (action.step != Step{}) {
    report(place, "an action of another step");
  }
}

// Only within a row: what other ranks must have done first, check_waits() sees.
void Validator::check_order(const Action& action, Place place) {
  for (const Action& need : order_.needs(action)) {
    const auto where = order_.place(need);
    if (where && where->rank == place.rank && *where > place) {
      report(place,
             spell(action, place.rank) + " before " + spell(need, place.rank) +
                 ", which it needs");
    }
  }
}

// Forwards, backwards and weight gradients of a stage, each for themselves.
// Weight gradients are summed by W, or by B where there is no W.
void Validator::check_microbatch_order() {
  for (Rank rank; rank.value < std::ssize(schedule_.rows); ++rank.value) {
    std::map<std::pair<StageId, Op>, Action> latest;
    // The action after which this one comes too late, if any.
    const auto too_late_after = [&](const Action& action, Op kind) {
      Action& known =
          latest.try_emplace({action.stage, kind}, action).first->second;
      const Action before = known;
      if (action.index < before.index) {
        return std::optional(before);
      }
      known = action;
      return std::optional<Action>();
    };
    Place place{rank, 0};
    for (const Action& action : row_of(rank)) {
      std::optional<Action> before;
      if (is_pass(action.op)) {
        before = too_late_after(action, action.op);
      }
      if (sums_weights(action)) {
        const auto weights_before = too_late_after(action, Op::weight);
        before = before ? before : weights_before;
      }
      if (before && order_.place(action) == place) {
        report(place,
               spell(action, rank) + " after " + spell(*before, rank) +
                   ": a stage takes the microbatches in order");
      }
      ++place.position;
    }
  }
}

void Validator::check_stage(StageId stage) {
  if (!order_.owner(stage)) {
    const Rank rank{std::min(stage.value, order_.ranks() - 1)};
    const int end = static_cast<int>(row_of(rank).size());
    report({rank, end}, "no rank has " + stage_text(stage));
    return;
  }
  check_passes(stage, Op::forward);
  if (order_.has_backward()) {
    check_passes(stage, Op::backward);
  }
}

// Goes by what is there and not by the microbatches, of which a broken schedule
// may claim any number.
void Validator::check_passes(StageId stage, Op op) {
  std::set<int> present;
  for (const Action& action : row_of(order_.owner(stage).value())) {
    if (action.op == op && action.stage == stage) {
      present.insert(action.index);
    }
  }
  present.insert(schedule_.microbatches);
  int expected = 0;
  for (const int microbatch : present) {
    if (microbatch > expected && expected < schedule_.microbatches) {
      report_missing(stage, op, expected, microbatch - 1);
    }
    expected = std::max(expected, microbatch + 1);
  }
}

// Beside its passes a complete schedule has just what the pass that completes
// them adds; before an evaluation, mirrors may take the first one's buffers.
void Validator::check_completeness() {
  const Schedule expected = complete(passes_of(schedule_));
  for (Rank rank; rank.value < std::ssize(schedule_.rows); ++rank.value) {
    const std::set<Action> wanted(expected.rows[rank.value].begin(),
                                  expected.rows[rank.value].end());
    const std::set<Action> present(row_of(rank).begin(), row_of(rank).end());
    Place place{rank, 0};
    for (const Action& action : row_of(rank)) {
      const bool evaluates =
          action.op == Op::share_buffers && !order_.has_backward();
      if (!wanted.contains(action) && !evaluates) {
        report(place, spell(action, rank) + " is not needed");
      }
      ++place.position;
    }
    std::vector<Action> missing;
    std::ranges::set_difference(wanted, present, std::back_inserter(missing));
    report_missing(missing);
  }
}

// Actions that follow each other in all but their index are reported as one.
void Validator::report_missing(const std::vector<Action>& actions) {
  const auto follows = [](const Action& action, const Action& next) {
    return Action{action.op, action.stage, action.index + 1, {}} == next;
  };
  auto first = actions.begin();
  while (first != actions.end()) {
    auto end = std::next(first);
    while (end != actions.end() && follows(*std::prev(end), *end)) {
      ++end;
    }
    report_missing(
        first->stage, first->op, first->index, std::prev(end)->index);
    first = end;
  }
}

// Where the next later microbatch stands, or else at the end of the row.
void Validator::report_missing(StageId stage, Op op, int first, int last) {
  const Rank rank = order_.owner(stage).value();
  const auto later =
      std::ranges::find_if(row_of(rank), [&](const Action& action) {
        return action.op == op && action.stage == stage && action.index > last;
      });
  std::string text = spell({op, stage, first, {}}, rank);
  if (last > first) {
    text += " to " + spell({op, stage, last, {}}, rank);
  }
  report({rank, static_cast<int>(later - row_of(rank).begin())},
         text + " missing");
}

void Validator::check_waits() {
  const std::vector<int> reached = order_.run([](Place) {});
  for (Rank rank; rank.value < std::ssize(reached); ++rank.value) {
    const int position = reached[rank.value];
    if (position == std::ssize(row_of(rank))) {
      continue;
    }
    const Action& stuck = row_of(rank)[position];
    for (const Place need : order_.waits_for(stuck, rank)) {
      const int other = reached[need.rank.value];
      if (need.position < other) {
        continue;
      }
      const Action& awaited = row_of(need.rank)[need.position];
      report({rank, position},
             spell(stuck, rank) + " waits forever for " + to_text(awaited) +
                 " of " + stage_text(awaited.stage) + ": " +
                 rank_text(need.rank) + " is itself stuck at " +
                 spell(row_of(need.rank)[other], need.rank));
    }
  }
}

// What is wrong with the counts of a schedule, by which all else goes.
std::optional<std::string> wrong_counts(const Schedule& schedule) {
  constexpr int kMost = kLargestNumber + 1;
  if (schedule.rows.empty() || schedule.stages() < 1 ||
      schedule.microbatches < 1) {
    return "a schedule needs a rank, a stage and a microbatch";
  }
  const std::vector<int>& buckets = schedule.synchronisation.buckets;
  if (schedule.stages() > kMost || schedule.microbatches > kMost ||
      std::ranges::any_of(buckets, [](int count) { return count > kMost; })) {
    return "a schedule has at most " + std::to_string(kMost) +
           " stages, microbatches and buckets of a stage";
  }
  if (!buckets.empty() && std::ssize(buckets) != schedule.stages()) {
    return "there are buckets of " + std::to_string(buckets.size()) +
           " stages and not of " + std::to_string(schedule.stages());
  }
  return std::nullopt;
}

}  // namespace

std::vector<Problem> problems(const Schedule& schedule) {
  const std::optional<std::string> wrong = wrong_counts(schedule);
  return wrong ? std::vector<Problem>{{Rank{0}, 0, *wrong}}
               : Validator(schedule).run();
}

std::string to_text(const std::vector<Problem>& problems,
                    const Schedule& schedule) {
  constexpr int kShownEachSide = 8;
  std::string text;
  for (const Problem& problem : problems) {
    const int rank = problem.rank.value;
    const Row row =
        rank < std::ssize(schedule.rows) ? schedule.rows[rank] : Row();
    const int size = static_cast<int>(row.size());
    const int first = std::max(problem.position - kShownEachSide, 0);
    const int end = std::min(problem.position + kShownEachSide + 1, size);
    std::string line = rank_text(problem.rank) + ": ";
    line += first > 0 ? "... " : "";
    std::size_t caret = line.size();
    for (int position = first; position < end; ++position) {
      caret = position == problem.position ? line.size() : caret;
      line += to_text(row[position], !has_only(row, StageId{rank})) + " ";
    }
    caret = problem.position >= size ? line.size() : caret;
    line += end < size ? "..." : "";
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n" + std::string(caret, ' ') + "^ " + problem.text + "\n";
  }
  return text;
}

void check(const Schedule& schedule) {
  constexpr std::size_t kShown = 10;
  std::vector<Problem> found = problems(schedule);
  if (found.empty()) {
    return;
  }
  const std::size_t count = found.size();
  found.resize(std::min(count, kShown));
  const std::string more =
      count > kShown ? "and " + std::to_string(count - kShown) + " more\n" : "";
  fail("the schedule cannot run: it has " + std::to_string(count) +
           (count == 1 ? " problem" : " problems"),
       "Change what is marked:\n" + to_text(found, schedule) + more);
}

}  // namespace cleave
