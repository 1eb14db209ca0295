#include "cleave/schedule/search/list_scheduler.h"

#include <algorithm>

namespace cleave {
ListScheduler::ListScheduler(RowsScorer& scorer)
    : scorer_(scorer),
      problem_(scorer.problem()),
      stages_(scorer.stages()),
      ranks_(scorer.ranks()),
      stages_of_(scorer.ranks()) {
  for (int stage = 0; stage < stages_; ++stage) {
    stages_of_[problem_.placement[stage].value].push_back(stage);
  }
  const std::size_t cells =
      static_cast<std::size_t>(stages_) * problem_.microbatches;
  forward_ends_.resize(cells);
  backward_ends_.resize(cells);
}

void ListScheduler::reset(const ListRule& rule) {
  rule_ = &rule;
  rows_.assign(ranks_, {});
  now_ = 0;
  free_.assign(ranks_, 0);
  last_forward_.assign(ranks_, 0);
  held_.assign(ranks_, 0);
  weights_left_.assign(ranks_, 0);
  forwards_.assign(stages_, 0);
  backwards_.assign(stages_, 0);
  weights_.assign(stages_, 0);
}

std::optional<NumberedRows> ListScheduler::run(const ListRule& rule) {
  reset(rule);
  std::vector<Choice> choices(ranks_);
  for (int rank = 0; rank < ranks_; ++rank) {
    choices[rank] = choose(rank);
  }
  for (;;) {
    const auto soonest = std::ranges::min_element(choices, {}, &Choice::time);
    if (soonest->stage < 0) {
      break;
    }
    const Choice choice = *soonest;
    const int first = static_cast<int>(soonest - choices.begin());
    now_ = choice.time;
    perform(choice, first);
    choices[first] = choose(first);
    // Those for whom something may have become ready.
    const int next = choice.stage + (choice.op == Op::forward ? 1 : -1);
    if (choice.op != Op::weight && next >= 0 && next < stages_) {
      const int rank = problem_.placement[next].value;
      choices[rank] = choose(rank);
    }
  }
  for (int stage = 0; stage < stages_; ++stage) {
    if (backwards_[stage] < problem_.microbatches) {
      return std::nullopt;
    }
  }
  return std::move(rows_);
}

double ListScheduler::ready_forward(int stage) const {
  const int m = forwards_[stage];
  if (m == problem_.microbatches ||
      m - backwards_[stage] >= rule_->in_flight[stage]) {
    return kNever;
  }
  if (stage == 0) {
    return 0;
  }
  if (m >= forwards_[stage - 1]) {
    return kNever;
  }
  const bool crosses =
      problem_.placement[stage - 1] != problem_.placement[stage];
  return forward_ends_[(stage - 1) * problem_.microbatches + m] +
         (crosses ? problem_.costs.stages[stage - 1].values.value : 0);
}

double ListScheduler::ready_backward(int stage) const {
  const int m = backwards_[stage];
  if (m >= forwards_[stage]) {
    return kNever;
  }
  if (stage + 1 == stages_) {
    return forward_ends_[stage * problem_.microbatches + m];
  }
  if (m >= backwards_[stage + 1]) {
    return kNever;
  }
  const bool crosses =
      problem_.placement[stage + 1] != problem_.placement[stage];
  return backward_ends_[(stage + 1) * problem_.microbatches + m] +
         (crosses ? problem_.costs.stages[stage + 1].gradients.value : 0);
}

// Of one microbatch, at any time.
std::int64_t ListScheduler::most_kept(int stage) const {
  const StageBytes& bytes = problem_.memory[stage];
  const Bytes later = scorer_.splits(stage) ? bytes.kept_for_weights : Bytes{};
  return std::max(bytes.kept, later).value;
}

// By one action, beside what is kept.
std::int64_t ListScheduler::most_needed(int stage) const {
  const StageBytes& bytes = problem_.memory[stage];
  const Bytes working = bytes.forward_need - bytes.kept;
  return (scorer_.splits(stage)
              ? std::max({working, bytes.backward_need, bytes.weight_need})
              : std::max(working, bytes.whole_need))
      .value;
}

// Whether the rank can keep another forward of the stage, and then still all
// that its oldest microbatch has yet to keep: that one can always go on.
bool ListScheduler::has_room(int stage) const {
  const int rank = problem_.placement[stage].value;
  const std::int64_t limit = rule_->limits[rank].value;
  if (limit == 0) {
    return true;
  }
  const int oldest = backwards_[stages_of_[rank].front()];
  std::int64_t needed = held_[rank] + most_kept(stage);
  std::int64_t working = 0;
  for (const int other : stages_of_[rank]) {
    const bool counted = other == stage && forwards_[stage] == oldest;
    if (forwards_[other] <= oldest && !counted) {
      needed += most_kept(other);
    }
    working = std::max(working, most_needed(other));
  }
  return needed + working <= limit;
}

bool ListScheduler::is_better(const Choice& a,
                              const Choice& b,
                              int rank) const {
  if (b.stage < 0 || a.stage < 0) {
    return b.stage < 0;
  }
  if (a.op != b.op) {
    const bool forward =
        rule_->turn == ListRule::Turn::forward_first ||
        (rule_->turn == ListRule::Turn::alternate && last_forward_[rank] == 0);
    return (a.op == Op::forward) == forward;
  }
  if (rule_->stage == ListRule::Stage::latest) {
    return a.stage > b.stage;
  }
  const std::vector<int>& done = a.op == Op::forward ? forwards_ : backwards_;
  return done[a.stage] < done[b.stage];
}

// What the rank does next, going by what is known now.
ListScheduler::Choice ListScheduler::choose(int rank) const {
  const double now = std::max(free_[rank], now_);
  const Choice weight = choose_weight(rank);
  if (weight.stage >= 0 && weights_left_[rank] > rule_->put_off[rank]) {
    return {weight.stage, Op::weight, now};
  }
  Choice best;
  Choice soonest;
  bool lacks_room = false;
  const auto consider = [&](const Choice& choice) {
    if (choice.time <= now && is_better(choice, best, rank)) {
      best = choice;
    }
    if (choice.time < soonest.time) {
      soonest = choice;
    }
  };
  for (const int stage : stages_of_[rank]) {
    consider({stage, Op::backward, ready_backward(stage)});
    const double forward = ready_forward(stage);
    if (forward < kNever && has_room(stage)) {
      consider({stage, Op::forward, forward});
    } else {
      lacks_room = lacks_room || forward <= now;
    }
  }
  if (best.stage >= 0) {
    best.time = now;
    const Choice backward = first_backward(rank);
    return is_in_the_way(best, backward) ? backward : best;
  }
  if (weight.stage < 0) {
    return soonest;
  }
  const double time = problem_.costs.stages[weight.stage].weight.value;
  if (lacks_room || soonest.time - now >= rule_->fit * time) {
    return {weight.stage, Op::weight, now};
  }
  return soonest;
}

// The rank's first backward, while it is still to come.
ListScheduler::Choice ListScheduler::first_backward(int rank) const {
  const int last = stages_of_[rank].back();
  const bool done = backwards_[last] > 0;
  return {last, Op::backward, done ? kNever : ready_backward(last)};
}

bool ListScheduler::is_in_the_way(const Choice& ready,
                                  const Choice& backward) const {
  const double time = problem_.costs.stages[ready.stage].forward.value;
  return rule_->first_backward_at_once && ready.op == Op::forward &&
         backward.time > ready.time && backward.time < ready.time + time;
}

ListScheduler::Choice ListScheduler::choose_weight(int rank) const {
  Choice oldest;
  for (const int stage : stages_of_[rank]) {
    if (scorer_.splits(stage) && weights_[stage] < backwards_[stage] &&
        (oldest.stage < 0 || weights_[stage] <= weights_[oldest.stage])) {
      oldest.stage = stage;
    }
  }
  return oldest;
}

void ListScheduler::perform(const Choice& choice, int rank) {
  const auto [stage, op, time] = choice;
  const StageCost& cost = problem_.costs.stages[stage];
  const StageBytes& bytes = problem_.memory[stage];
  const bool split = scorer_.splits(stage);
  double& end = free_[rank];
  int* done = &weights_[stage];
  if (op == Op::forward) {
    done = &forwards_[stage];
    end = time + cost.forward.value;
    forward_ends_[stage * problem_.microbatches + *done] = end;
    held_[rank] += bytes.kept.value;
  } else if (op == Op::backward) {
    done = &backwards_[stage];
    end = time + cost.backward.value + (split ? 0 : cost.weight.value);
    backward_ends_[stage * problem_.microbatches + *done] = end;
    held_[rank] +=
        (split ? bytes.kept_for_weights.value : 0) - bytes.kept.value;
    weights_left_[rank] += split ? 1 : 0;
  } else {
    end = time + cost.weight.value;
    held_[rank] -= bytes.kept_for_weights.value;
    --weights_left_[rank];
  }
  last_forward_[rank] = op == Op::forward ? 1 : 0;
  const Action action{op, StageId{stage}, (*done)++, {}};
  rows_[rank].push_back(scorer_.timer().number(action));
}

}  // namespace cleave
