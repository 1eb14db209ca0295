#include "cleave/schedule/search/search.h"

#include <algorithm>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "cleave/error.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/search/list_scheduler.h"
#include "cleave/schedule/search/rows_improver.h"
#include "cleave/schedule/search/rows_scorer.h"

namespace cleave {
namespace {

// Counted as RowsScorer does.
constexpr std::int64_t kEffortForLists = 250'000'000;
constexpr std::int64_t kEffortPerCandidate = 15'000'000;
constexpr std::int64_t kEffortForTheBest = 100'000'000;
constexpr std::int64_t kEffortForMemory = 20'000'000;
constexpr std::int64_t kLeastTrials = 100;
constexpr std::size_t kMostCandidates = 6;
// Of rules, so that the first few are of every kind: it has no factor in common
// with their number.
constexpr std::size_t kRuleStride = 101;

struct Found {
  Schedule schedule;
  Score score;
};

class Search {
 public:
  // `splits`: by stage, whether it has W.
  Search(const SearchProblem& problem, const std::vector<char>& splits)
      : problem_(problem),
        scorer_(problem, splits),
        lists_(scorer_),
        improver_(scorer_) {}

  std::optional<Found> run();

 private:
  struct Candidate : ScoredRows {
    std::optional<ListRule> rule;  // that made the rows
  };

  void offer_lists();
  void offer_registry();
  static bool are_alike(const Candidate& a, const Candidate& b);
  void offer(Candidate candidate);
  std::optional<Candidate> make(const ListRule& rule);
  void climb(Candidate& candidate);
  bool try_rule(Candidate& candidate, std::span<int> numbers, int change);
  void offer_thrifty(const Candidate& candidate, ScoredRows& best);
  NumberedRows with_all_weights(const NumberedRows& rows);
  Schedule to_schedule(const NumberedRows& rows);
  void merge_weights(ScoredRows& best);

  const SearchProblem& problem_;
  RowsScorer scorer_;
  ListScheduler lists_;
  RowsImprover improver_;
  std::vector<Candidate> candidates_;  // a few, the best first
};

std::optional<Found> Search::run() {
  offer_registry();
  offer_lists();
  for (Candidate& candidate : candidates_) {
    scorer_.allow(kEffortPerCandidate, kLeastTrials);
    climb(candidate);
    improver_.descend(candidate);
  }
  const auto shortest = std::ranges::min_element(
      candidates_, [](const Candidate& a, const Candidate& b) {
        return is_better(a.score, b.score);
      });
  if (shortest == candidates_.end()) {
    return std::nullopt;
  }
  ScoredRows best = *shortest;
  scorer_.allow(kEffortForTheBest, kLeastTrials);
  improver_.shake(best);
  for (const Candidate& candidate : candidates_) {
    offer_thrifty(candidate, best);
  }
  scorer_.allow(kEffortForMemory, 0);
  improver_.save_memory(best);
  merge_weights(best);
  return Found{to_schedule(best.rows), best.score};
}

// Where there is effort only for some of the rules, not just for the first.
void Search::offer_lists() {
  const std::vector<ListRule> rules = list_rules(problem_);
  scorer_.allow(kEffortForLists, kLeastTrials);
  for (std::size_t i = 0; i < rules.size() && scorer_.has_effort(); ++i) {
    if (auto made = make(rules[i * kRuleStride % rules.size()])) {
      offer(std::move(*made));
    }
  }
}

void Search::offer_registry() {
  const int ranks = scorer_.ranks();
  const ScheduleShape shape{
      ranks, scorer_.stages() / ranks, problem_.microbatches};
  for (const ScheduleKind& kind : kSchedules) {
    const bool can_be = kind.stages_per_rank == kAnyNumber ||
                        kind.stages_per_rank == shape.stages_per_rank;
    if (can_be && shape.stages() == scorer_.stages() &&
        placement(kind.name, shape) == problem_.placement) {
      const Schedule schedule = kind.make(shape);
      NumberedRows rows =
          with_all_weights(scorer_.timer().numbered(schedule.rows));
      if (const std::optional<Score> score = scorer_.score(rows)) {
        offer({{std::move(rows), *score}, std::nullopt});
      }
    }
  }
}

// The same with a W right behind every B that has none, and without W where
// that takes no time.
NumberedRows Search::with_all_weights(const NumberedRows& rows) {
  NumberedRows result;
  for (const NumberedRow& row : rows) {
    NumberedRow& out = result.emplace_back();
    for (const int number : row) {
      const auto [op, stage, microbatch, step] = scorer_.timer().action(number);
      const bool splits = scorer_.splits(stage.value);
      if (op != Op::weight || splits) {
        out.push_back(number);
      }
      const int weight =
          scorer_.timer().number({Op::weight, stage, microbatch, {}});
      if (op == Op::backward && splits &&
          std::ranges::find(row, weight) == row.end()) {
        out.push_back(weight);
      }
    }
  }
  return result;
}

// Of candidates that are alike only one is worth improving.
bool Search::are_alike(const Candidate& a, const Candidate& b) {
  const auto kind = [](const Candidate& candidate) {
    const ListRule rule = candidate.rule.value_or(ListRule{});
    return std::tuple(candidate.rule.has_value(),
                      rule.turn,
                      rule.stage,
                      rule.first_backward_at_once);
  };
  return kind(a) == kind(b);
}

// Keeps the rows where they are among the best.
void Search::offer(Candidate candidate) {
  const auto alike = std::ranges::find_if(
      candidates_,
      [&](const Candidate& other) { return are_alike(other, candidate); });
  if (alike != candidates_.end()) {
    if (!is_better(candidate.score, alike->score)) {
      return;
    }
    candidates_.erase(alike);
  }
  const auto place =
      std::ranges::find_if(candidates_, [&](const Candidate& other) {
        return is_better(candidate.score, other.score);
      });
  candidates_.insert(place, std::move(candidate));
  if (candidates_.size() > kMostCandidates) {
    candidates_.pop_back();
  }
}

// What the rule makes, where it fits.
std::optional<Search::Candidate> Search::make(const ListRule& rule) {
  std::optional<NumberedRows> rows = lists_.run(rule);
  const std::optional<Score> score = rows ? scorer_.score(*rows) : std::nullopt;
  if (!score) {
    return std::nullopt;
  }
  return Candidate{{std::move(*rows), *score}, rule};
}

// Changes the numbers of the candidate's rule, many and then few at a time, as
// long as that helps.
void Search::climb(Candidate& candidate) {
  if (!candidate.rule) {
    return;
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (auto* numbers :
         {&candidate.rule->in_flight, &candidate.rule->put_off}) {
      for (std::size_t size = numbers->size(); size > 0; size /= 2) {
        for (std::size_t at = 0; at + size <= numbers->size(); at += size) {
          for (const int change : {-1, 1, -3, 3}) {
            if (scorer_.is_enough(candidate.score)) {
              return;
            }
            const std::span part(numbers->data() + at, size);
            moved = try_rule(candidate, part, change) || moved;
          }
        }
      }
    }
  }
}

// Changes numbers of the rule, and keeps the change where it makes the period
// shorter.
bool Search::try_rule(Candidate& candidate,
                      std::span<int> numbers,
                      int change) {
  const std::vector<int> before(numbers.begin(), numbers.end());
  for (int& number : numbers) {
    // More than there are microbatches: no limit at all.
    number =
        number > problem_.microbatches ? number : std::max(number + change, 0);
  }
  if (!std::ranges::equal(numbers, before)) {
    std::optional<Candidate> made = make(*candidate.rule);
    if (made && is_shorter(made->score, candidate.score)) {
      candidate.rows = std::move(made->rows);
      candidate.score = made->score;
      return true;
    }
  }
  std::ranges::copy(before, numbers.begin());
  return false;
}

// Takes what the candidate's rule makes in less memory, where that is as short.
void Search::offer_thrifty(const Candidate& candidate, ScoredRows& best) {
  if (!candidate.rule) {
    return;
  }
  ListRule thrifty = *candidate.rule;
  for (const double share : {0.5, 0.6, 0.7, 0.8, 0.9}) {
    const auto most = static_cast<double>(best.score.peak);
    const Bytes less{static_cast<std::int64_t>(share * most)};
    for (std::size_t rank = 0; rank < problem_.limits.size(); ++rank) {
      const Bytes limit = problem_.limits[rank];
      thrifty.limits[rank] = limit > Bytes{} ? std::min(limit, less) : less;
    }
    const std::optional<Candidate> made = make(thrifty);
    if (made && is_better(made->score, best.score)) {
      best.rows = made->rows;
      best.score = made->score;
      return;
    }
  }
}

// Lets a B do both where its W comes right behind it and nothing is lost: that
// is less work for whoever runs it.
void Search::merge_weights(ScoredRows& best) {
  const int per_op = scorer_.stages() * problem_.microbatches;
  for (NumberedRow& row : best.rows) {
    NumberedRow merged;
    for (const int number : row) {
      const bool follows = !merged.empty() && number >= 2 * per_op &&
                           merged.back() == number - per_op;
      if (!follows) {
        merged.push_back(number);
      }
    }
    std::swap(row, merged);
    const std::optional<Seconds> period = scorer_.timer().period(best.rows);
    if (!period || is_less(best.score.period, period->value)) {
      std::swap(row, merged);
    }
  }
}

Schedule Search::to_schedule(const NumberedRows& rows) {
  Schedule schedule{scorer_.stages(), problem_.microbatches, {}, {}};
  for (const NumberedRow& row : rows) {
    Row& out = schedule.rows.emplace_back();
    for (const int number : row) {
      out.push_back(scorer_.timer().action(number));
    }
  }
  return schedule;
}

// By stage: whether it has W. There is none where that takes no time nor, if
// `thrifty`, where it needs more memory than to do both at once.
std::vector<char> split_stages(const SearchProblem& problem, bool thrifty) {
  std::vector<char> splits;
  for (std::size_t stage = 0; stage < problem.memory.size(); ++stage) {
    const StageBytes& bytes = problem.memory[stage];
    const bool useful = problem.costs.stages[stage].weight > Seconds{};
    const bool costly = bytes.kept_for_weights > bytes.kept;
    splits.push_back(useful && !(thrifty && costly) ? 1 : 0);
  }
  return splits;
}

void check_sizes(const SearchProblem& problem) {
  const std::size_t stages = problem.placement.size();
  if (stages == 0 || problem.microbatches < 1) {
    fail("there is nothing to schedule",
         "Give at least one stage and one microbatch.");
  }
  const Rank last = std::ranges::max(problem.placement);
  const Rank first = std::ranges::min(problem.placement);
  if (first.value < 0 || problem.memory.size() != stages ||
      std::ssize(problem.limits) != last.value + 1) {
    fail(std::to_string(stages) + " stages on the ranks " +
             std::to_string(first.value) + " to " + std::to_string(last.value) +
             " cannot have the memory of " +
             std::to_string(problem.memory.size()) + " stages and " +
             std::to_string(problem.limits.size()) + " ranks",
         "Give what each stage keeps and the limit of each rank.");
  }
}

}  // namespace

std::optional<Schedule> search_schedule(const SearchProblem& problem) {
  check_sizes(problem);
  check_costs(problem.costs, static_cast<int>(problem.placement.size()));
  const std::vector<char> splits = split_stages(problem, false);
  const std::vector<char> thrifty = split_stages(problem, true);
  std::optional<Found> best = Search(problem, splits).run();
  if (thrifty != splits) {
    std::optional<Found> other = Search(problem, thrifty).run();
    if (other && (!best || is_better(other->score, best->score))) {
      best = std::move(other);
    }
  }
  return best ? std::optional(std::move(best->schedule)) : std::nullopt;
}

Seconds least_period(const ScheduleCosts& costs,
                     const std::vector<Rank>& placement,
                     int microbatches) {
  const PeriodTimer timer(placement, microbatches, costs);
  Seconds most;
  for (const Rank rank : placement) {
    most = std::max(most, timer.work(rank));
  }
  return most;
}

}  // namespace cleave
