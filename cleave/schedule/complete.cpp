#include "cleave/schedule/complete.h"

#include <algorithm>

#include "cleave/error.h"
#include "cleave/schedule/generators/registry.h"
#include "cleave/schedule/order.h"

namespace cleave {
namespace {

// Writes the row of one rank.
class RowCompleter {
 public:
  explicit RowCompleter(const Order& order)
      : order_(order),
        graph_(order.schedule().graph),
        all_(order.schedule().synchronisation) {}

  Row run(const Row& passes) {
    for (const Action& action : passes) {
      before(action);
      row_.push_back(action);
      behind(action);
      if (order_.completes(action.stage) == action) {
        finished_.push_back(action.stage);
        update_now(action.stage);
      }
    }
    finish_step();
    return std::move(row_);
  }

 private:
  void add(Op op, StageId stage, int index = 0) {
    row_.push_back({op, stage, index, {}});
  }

  bool reads_others(StageId stage) const {
    return !order_.crossing_sources(stage).empty();
  }

  bool is_read_by_others(StageId stage) const {
    return !order_.crossing_readers(stage).empty();
  }

  bool is_tied_to_earlier(StageId stage) const {
    return std::ranges::find(graph_.ties(), stage, &StageTie::later) !=
           graph_.ties().end();
  }

  bool is_tied_to_later(StageId stage) const {
    return std::ranges::find(graph_.ties(), stage, &StageTie::earlier) !=
           graph_.ties().end();
  }

  void before(const Action& action) {
    const auto& [op, stage, index, step] = action;
    if (op == Op::forward && reads_others(stage)) {
      add(Op::receive_values, stage, index);
    }
    if (op == Op::backward && is_read_by_others(stage)) {
      add(Op::receive_gradients, stage, index);
    }
    if (op == Op::backward && is_tied_to_later(stage)) {
      add(Op::receive_tied_gradients, stage, index);
    }
  }

  // All buckets but the last are complete before B ends, so their sums begin
  // before its message is sent.
  void behind(const Action& action) {
    const auto& [op, stage, index, step] = action;
    const int sums = sums_behind(action);
    const bool sends = op == Op::backward && reads_others(stage);
    const int at_once = sends ? std::max(0, sums - 1) : sums;
    add_sums(action, 0, at_once);
    if (op == Op::forward && is_read_by_others(stage)) {
      add(Op::send_values, stage, index);
    }
    if (sends) {
      add(Op::send_gradients, stage, index);
    }
    if (op == Op::backward && is_tied_to_earlier(stage)) {
      add(Op::send_tied_gradients, stage, index);
    }
    add_sums(action, at_once, sums);
  }

  int sums_behind(const Action& action) const {
    const bool adds =
        adds_gradients(action.op, order_.is_split(action.stage, action.index));
    if (!adds || !all_.mirrored()) {
      return 0;
    }
    if (all_.shard_states == ShardStates::gradients) {
      return 1;
    }
    return order_.completes(action.stage) == action
               ? reduce_count(order_.schedule(), action.stage)
               : 0;
  }

  void add_sums(const Action& action, int first, int end) {
    const bool every_one = all_.shard_states == ShardStates::gradients;
    for (int i = first; i < end; ++i) {
      add(Op::reduce, action.stage, every_one ? action.index : i);
    }
  }

  void update_now(StageId stage) {
    if (!all_.mirrored() && !all_.clips) {
      add(Op::update, stage);
    }
  }

  void finish_step() {
    std::ranges::sort(finished_);
    if (all_.clips) {
      add_norms();
    }
    if (all_.mirrored() || all_.clips) {
      for (const StageId stage : finished_) {
        add(Op::update, stage);
        if (all_.mirrored() && all_.shard_states != ShardStates::none) {
          add(Op::gather_weights, stage);
        }
      }
    }
    for (const StageId stage : finished_) {
      if (is_tied_to_earlier(stage)) {
        add(Op::receive_tied_weights, stage);
      }
      if (is_tied_to_later(stage)) {
        add(Op::send_tied_weights, stage);
      }
    }
  }

  void add_norms() {
    const bool over_mirrors =
        all_.mirrored() && all_.shard_states != ShardStates::none;
    for (const StageId stage : finished_) {
      add(Op::norm, stage);
      if (over_mirrors) {
        add(Op::reduce_norm, stage);
      }
      if (order_.ranks() > 1) {
        add(Op::send_norms, stage);
      }
    }
    if (order_.ranks() > 1 && !finished_.empty()) {
      add(Op::receive_norms, finished_.front());
    }
  }

  const Order& order_;
  const StageGraph& graph_;
  const Synchronisation& all_;
  Row row_;
  std::vector<StageId> finished_;  // whose gradients are complete
};

Row filtered(const Row& row, const auto& keeps) {
  Row kept;
  std::ranges::copy_if(row, std::back_inserter(kept), keeps);
  return kept;
}

}  // namespace

Schedule complete(const Schedule& passes) {
  const Order order(passes);
  if (order.is_complete()) {
    fail("the schedule already has messages or updates",
         "Complete a schedule of F, B and W.");
  }
  Schedule result = passes;
  for (Row& row : result.rows) {
    row = RowCompleter(order).run(row);
  }
  return result;
}

Schedule passes_of(const Schedule& schedule) {
  Schedule result = schedule;
  for (Row& row : result.rows) {
    row =
        filtered(row, [](const Action& action) { return is_pass(action.op); });
  }
  return result;
}

Schedule with_microbatches(const Schedule& schedule, int own, int most) {
  Schedule result = schedule;
  result.microbatches = own;
  const bool sums_each =
      schedule.synchronisation.shard_states == ShardStates::gradients;
  for (Row& row : result.rows) {
    row = filtered(row, [&](const Action& action) {
      if (action.op == Op::reduce && sums_each) {
        return action.index < most;
      }
      return traits(action.op).index != IndexOf::microbatch ||
             action.index < own;
    });
  }
  return result;
}

Schedule evaluation_of(const Schedule& schedule) {
  const Order order(schedule);
  std::vector<Rank> placement;
  for (StageId stage; stage.value < schedule.stages(); ++stage.value) {
    placement.push_back(order.owner(stage).value());
  }
  Schedule forward = forward_only(placement, schedule.microbatches);
  forward.graph = schedule.graph;
  forward.rows.resize(schedule.rows.size());  // some may have no stage
  Schedule result = complete(forward);
  if (schedule.synchronisation.mirrored()) {
    for (Rank rank; rank.value < std::ssize(result.rows); ++rank.value) {
      Row& row = result.rows[rank.value];
      Row buffers;
      for (const StageId stage : order.stages_of(rank)) {
        buffers.push_back({Op::share_buffers, stage, 0, {}});
      }
      row.insert(row.begin(), buffers.begin(), buffers.end());
    }
  }
  return result;
}

}  // namespace cleave
