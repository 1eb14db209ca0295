#include "cleave/schedule/op.h"

#include <algorithm>
#include <array>

#include "cleave/schedule/memory.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/simulate.h"

namespace cleave {
namespace {

using Actions = std::vector<Action>;

Action like(const Action& action, Op op, StageId stage) {
  return {op, stage, action.index, action.step};
}

Action once(const Action& action, Op op, StageId stage) {
  return {op, stage, 0, action.step};
}

// ---- what an action needs ----

Actions nothing(const Order&, const Action&) {
  return {};
}

Actions for_forward(const Order& order, const Action& action) {
  Actions needs;
  for (const StageId source : order.schedule().graph.sources(action.stage)) {
    needs.push_back(order.is_complete() && order.crosses(source, action.stage)
                        ? like(action, Op::receive_values, action.stage)
                        : like(action, Op::forward, source));
  }
  return needs;
}

Actions for_backward(const Order& order, const Action& action) {
  const StageGraph& graph = order.schedule().graph;
  Actions needs{like(action, Op::forward, action.stage)};
  for (const StageId reader : graph.readers(action.stage)) {
    needs.push_back(order.is_complete() && order.crosses(action.stage, reader)
                        ? like(action, Op::receive_gradients, action.stage)
                        : like(action, Op::backward, reader));
  }
  for (const StageTie& tie : graph.ties()) {
    if (tie.earlier == action.stage) {
      needs.push_back(
          order.is_complete()
              ? like(action, Op::receive_tied_gradients, tie.earlier)
              : like(action, Op::backward, tie.later));
    }
  }
  return needs;
}

Actions own_forward(const Order&, const Action& action) {
  return {like(action, Op::forward, action.stage)};
}

Actions own_backward(const Order&, const Action& action) {
  return {like(action, Op::backward, action.stage)};
}

Actions sent_values(const Order& order, const Action& action) {
  Actions needs;
  for (const StageId source : order.crossing_sources(action.stage)) {
    needs.push_back(like(action, Op::send_values, source));
  }
  return needs;
}

Actions sent_gradients(const Order& order, const Action& action) {
  Actions needs;
  for (const StageId reader : order.crossing_readers(action.stage)) {
    needs.push_back(like(action, Op::send_gradients, reader));
  }
  return needs;
}

Actions sent_tied_gradients(const Order& order, const Action& action) {
  Actions needs;
  for (const StageTie& tie : order.schedule().graph.ties()) {
    if (tie.earlier == action.stage) {
      needs.push_back(like(action, Op::send_tied_gradients, tie.later));
    }
  }
  return needs;
}

// All gradients of the stage, of this replica.
Actions own_gradients(const Order& order, const Action& action) {
  const std::optional<Action> last = order.completes(action.stage);
  return last ? Actions{*last} : Actions{};
}

// A bucket is summed once all its gradients are there; where replicas keep no
// more than their sections, after every microbatch.
Actions for_reduce(const Order& order, const Action& action) {
  if (order.schedule().synchronisation.shard_states != ShardStates::gradients) {
    return own_gradients(order, action);
  }
  const bool split = order.is_split(action.stage, action.index);
  return {like(action, split ? Op::weight : Op::backward, action.stage)};
}

// All gradients of the stage, of all replicas: also those of microbatches that
// only others have.
Actions all_gradients(const Order& order, const Action& action) {
  const int sums = reduce_count(order.schedule(), action.stage);
  Actions needs;
  for (Action sum{Op::reduce, action.stage, 0, action.step};
       sum.index < sums || order.has(sum);
       ++sum.index) {
    needs.push_back(sum);
  }
  return needs.empty() ? own_gradients(order, action) : needs;
}

Op last_op_of_norm(const Order& order) {
  const Synchronisation& all = order.schedule().synchronisation;
  return all.mirrored() && all.shard_states != ShardStates::none
             ? Op::reduce_norm
             : Op::norm;
}

Actions own_norm(const Order&, const Action& action) {
  return {once(action, Op::norm, action.stage)};
}

Actions norm_of_mirrors(const Order& order, const Action& action) {
  return {once(action, last_op_of_norm(order), action.stage)};
}

Actions sent_norms(const Order& order, const Action& action) {
  Actions needs;
  for (StageId other; other.value < order.schedule().stages(); ++other.value) {
    if (order.crosses(action.stage, other)) {
      needs.push_back(once(action, Op::send_norms, other));
    }
  }
  return needs;
}

Actions for_update(const Order& order, const Action& action) {
  const std::optional<Rank> rank = order.owner(action.stage);
  if (!order.schedule().synchronisation.clips || !rank) {
    return all_gradients(order, action);
  }
  Actions needs;
  const std::vector<StageId> own = order.stages_of(*rank);
  for (const StageId stage : own) {
    needs.push_back(once(action, last_op_of_norm(order), stage));
  }
  if (order.ranks() > 1) {
    needs.push_back(once(action, Op::receive_norms, own.front()));
  }
  return needs;
}

Actions own_update(const Order&, const Action& action) {
  return {once(action, Op::update, action.stage)};
}

bool is_given_tied_weights(const StageGraph& graph, StageId stage) {
  return std::ranges::any_of(
      graph.ties(), [&](const StageTie& tie) { return tie.later == stage; });
}

// A stage in the middle of a tie hands on what it was given.
Actions for_send_tied_weights(const Order& order, const Action& action) {
  const Synchronisation& all = order.schedule().synchronisation;
  const bool gathers = all.mirrored() && all.shard_states != ShardStates::none;
  Actions needs{
      once(action, gathers ? Op::gather_weights : Op::update, action.stage)};
  if (is_given_tied_weights(order.schedule().graph, action.stage)) {
    needs.push_back(once(action, Op::receive_tied_weights, action.stage));
  }
  return needs;
}

// The stage's own copy is written only when its last backward has run.
Actions for_receive_tied_weights(const Order& order, const Action& action) {
  Actions needs = own_gradients(order, action);
  for (const StageTie& tie : order.schedule().graph.ties()) {
    if (tie.later == action.stage) {
      needs.push_back(once(action, Op::send_tied_weights, tie.earlier));
    }
  }
  return needs;
}

// ---- what it costs ----

const StageCost& cost_of(const ScheduleCosts& costs, const Action& action) {
  return costs.stages.at(action.stage.value);
}

Seconds free_of_cost(const ScheduleCosts&, const Action&, bool) {
  return {};
}
Seconds forward_cost(const ScheduleCosts& costs, const Action& action, bool) {
  return cost_of(costs, action).forward;
}
Seconds backward_cost(const ScheduleCosts& costs,
                      const Action& action,
                      bool split) {
  const StageCost& cost = cost_of(costs, action);
  return split ? cost.backward : cost.backward + cost.weight;
}
Seconds weight_cost(const ScheduleCosts& costs, const Action& action, bool) {
  return cost_of(costs, action).weight;
}
Seconds update_cost(const ScheduleCosts& costs, const Action& action, bool) {
  return cost_of(costs, action).update;
}
Seconds reduce_cost(const ScheduleCosts& costs, const Action& action, bool) {
  return cost_of(costs, action).reduce;
}
Seconds values_cost(const ScheduleCosts& costs, const Action& action, bool) {
  return cost_of(costs, action).values;
}
Seconds gradients_cost(const ScheduleCosts& costs, const Action& action, bool) {
  return cost_of(costs, action).gradients;
}

// ---- how memory changes ----

MemoryUse no_memory(const StageBytes&, bool) {
  return {};
}

MemoryUse forward_memory(const StageBytes& stage, bool) {
  return {stage.forward_need, stage.kept};
}

MemoryUse backward_memory(const StageBytes& stage, bool split) {
  return split ? MemoryUse{stage.backward_need,
                           stage.kept_for_weights - stage.kept}
               : MemoryUse{stage.whole_need + stage.sums, Bytes{} - stage.kept};
}

MemoryUse weight_memory(const StageBytes& stage, bool) {
  return {stage.weight_need + stage.sums, Bytes{} - stage.kept_for_weights};
}

// ---- what it hands on ----

std::vector<StageId> nobody(const StageGraph&, StageId) {
  return {};
}
std::vector<StageId> those_that_read(const StageGraph& graph, StageId stage) {
  return graph.readers(stage);
}
std::vector<StageId> those_it_reads(const StageGraph& graph, StageId stage) {
  return graph.sources(stage);
}

HandedOn nothing_left(const StageBytes&) {
  return {};
}
HandedOn values_left(const StageBytes& stage) {
  return {stage.leaving, {}};
}
HandedOn gradients_left(const StageBytes& stage) {
  return {stage.returning, stage.shared};
}

// clang-format off
constexpr auto kMicrobatch = IndexOf::microbatch;
constexpr auto kBucket = IndexOf::bucket;
constexpr auto kNothing = IndexOf::nothing;
constexpr auto kCompute = Lane::compute;
constexpr auto kNetwork = Lane::network;
constexpr auto kEnded = Going::when_ended;
constexpr auto kBegun = Going::when_begun;
constexpr auto kNone = MessageEnd::none;
constexpr auto kSend = MessageEnd::send;
constexpr auto kReceive = MessageEnd::receive;

constexpr std::array kTable{
    OpTraits{Op::forward, "F", "forward", kCompute, kMicrobatch, kEnded, kNone, {}, for_forward, forward_cost, forward_memory, those_that_read, values_left},
    OpTraits{Op::backward, "B", "backward", kCompute, kMicrobatch, kEnded, kNone, {}, for_backward, backward_cost, backward_memory, those_it_reads, gradients_left},
    OpTraits{Op::weight, "W", "weight gradients", kCompute, kMicrobatch, kEnded, kNone, {}, own_backward, weight_cost, weight_memory, nobody, nothing_left},
    OpTraits{Op::reduce, "G", "sum of gradients", kNetwork, kBucket, kBegun, kNone, {}, for_reduce, reduce_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::norm, "N", "norm", kCompute, kNothing, kEnded, kNone, {}, all_gradients, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::update, "U", "update", kCompute, kNothing, kEnded, kNone, {}, for_update, update_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::receive_values, "RF", "receiving values", kNetwork, kMicrobatch, kEnded, kReceive, Op::send_values, sent_values, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::send_values, "SF", "sending values", kNetwork, kMicrobatch, kBegun, kSend, Op::receive_values, own_forward, values_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::receive_gradients, "RB", "receiving gradients", kNetwork, kMicrobatch, kEnded, kReceive, Op::send_gradients, sent_gradients, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::send_gradients, "SB", "sending gradients", kNetwork, kMicrobatch, kBegun, kSend, Op::receive_gradients, own_backward, gradients_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::receive_tied_gradients, "RT", "receiving gradients of shared weights", kNetwork, kMicrobatch, kEnded, kReceive, Op::send_tied_gradients, sent_tied_gradients, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::send_tied_gradients, "ST", "sending gradients of shared weights", kNetwork, kMicrobatch, kBegun, kSend, Op::receive_tied_gradients, own_backward, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::receive_tied_weights, "RV", "receiving shared weights", kNetwork, kNothing, kEnded, kReceive, Op::send_tied_weights, for_receive_tied_weights, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::send_tied_weights, "SV", "sending shared weights", kNetwork, kNothing, kBegun, kSend, Op::receive_tied_weights, for_send_tied_weights, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::reduce_norm, "M", "sum of norms", kNetwork, kNothing, kEnded, kNone, {}, own_norm, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::receive_norms, "RN", "receiving norms", kNetwork, kNothing, kEnded, kReceive, Op::send_norms, sent_norms, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::send_norms, "SN", "sending norms", kNetwork, kNothing, kBegun, kSend, Op::receive_norms, norm_of_mirrors, free_of_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::gather_weights, "A", "gathering weights", kNetwork, kNothing, kEnded, kNone, {}, own_update, reduce_cost, no_memory, nobody, nothing_left},
    OpTraits{Op::share_buffers, "C", "copying buffers", kNetwork, kNothing, kEnded, kNone, {}, nothing, free_of_cost, no_memory, nobody, nothing_left},
};
// clang-format on

static_assert(has_every_op(kTable));

constexpr bool has_both_ends_of_messages() {
  return std::ranges::all_of(kTable, [](const OpTraits& kind) {
    if (!kind.other_end) {
      return kind.end == kNone;
    }
    const OpTraits& other = kTable[static_cast<std::size_t>(*kind.other_end)];
    return other.other_end == kind.op && kind.end != kNone &&
           other.end == (kind.end == kSend ? kReceive : kSend);
  });
}
static_assert(has_both_ends_of_messages());

}  // namespace

std::span<const OpTraits> op_table() {
  return kTable;
}

const OpTraits& traits(Op op) {
  return kTable.at(static_cast<std::size_t>(op));
}

}  // namespace cleave
