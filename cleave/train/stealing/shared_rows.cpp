#include "cleave/train/stealing/shared_rows.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cleave {
namespace {

// Cuts a row into units and finds what each must wait for in it.
class RowCutter {
 public:
  RowCutter(const Order& order, const Row& row) : order_(order), row_(row) {
    for (const Action& action : row_) {
      if (action.op == Op::backward) {
        const bool split = order.is_split(action.stage, action.index);
        std::map<StageId, int>& counts = split ? split_ : whole_;
        ++counts[action.stage];
      }
    }
  }

  std::vector<WorkUnit> run() {
    bool has_computed = false;
    for (std::size_t position = 0; position < row_.size(); ++position) {
      const Action& action = row_[position];
      const bool begins = is_receive(action.op) || is_compute(action.op);
      if (units_.empty() || (begins && has_computed)) {
        units_.push_back({.first = position});
        has_computed = false;
      }
      add(action, position);
      has_computed = has_computed || is_compute(action.op);
    }
    return std::move(units_);
  }

 private:
  void add(const Action& action, std::size_t position) {
    WorkUnit& unit = units_.back();
    unit.end = position + 1;
    const int number = static_cast<int>(units_.size()) - 1;
    unit_of_[action] = number;
    if (is_receive(action.op)) {
      unit.receives.push_back(action);
    }
    for (const Action& need : order_.needs(action)) {
      need_unit(need);
    }
    if (is_pass(action.op)) {
      need_earlier(action);
      last_[{action.stage, action.op}] = number;
    }
  }

  // Of this row, and not of the same unit.
  void need_unit(const Action& action) {
    const auto found = unit_of_.find(action);
    const int number = static_cast<int>(units_.size()) - 1;
    if (found != unit_of_.end() && found->second != number) {
      units_.back().needs.push_back(found->second);
    }
  }

  // The same kind of the stage before it; and where some backwards of a stage
  // leave a W and others do not, or all gradients are complete behind it, all
  // that adds to them.
  void need_earlier(const Action& action) {
    const bool mixed = split_[action.stage] > 0 && whole_[action.stage] > 0;
    const bool last = order_.completes(action.stage) == action;
    for (const Op kind : {Op::forward, Op::backward, Op::weight}) {
      const bool both_add =
          kind != Op::forward && action.op != Op::forward && (mixed || last);
      const auto found = last_.find({action.stage, kind});
      if (found != last_.end() && (kind == action.op || both_add)) {
        units_.back().needs.push_back(found->second);
      }
    }
  }

  const Order& order_;
  const Row& row_;
  std::vector<WorkUnit> units_;
  std::map<Action, int> unit_of_;
  std::map<std::pair<StageId, Op>, int> last_;
  std::map<StageId, int> split_;
  std::map<StageId, int> whole_;
};

// What the actions of a unit can need above what is kept before it.
Bytes memory_of(const WorkUnit& unit,
                const Row& row,
                const std::vector<MemoryUse>& uses,
                const StageGraph& graph,
                const std::vector<StageBytes>& stages) {
  Bytes most;
  for (std::size_t i = unit.first; i < unit.end; ++i) {
    const HandedOn handed = handed_on_by(row[i], stages);
    const Bytes leaves = std::ssize(takers_of(row[i], graph)) *
                         (handed.until_taken + handed.until_done);
    most = std::max({most, uses[i].needed, uses[i].change + leaves});
  }
  return most;
}

}  // namespace

std::vector<SharedRow> shared_rows(const Order& order,
                                   const std::vector<StageBytes>& stages,
                                   const std::vector<Bytes>& slack) {
  const Schedule& schedule = order.schedule();
  const auto uses = memory_uses(schedule, stages);
  std::vector<SharedRow> rows;
  for (Rank rank; rank.value < order.ranks(); ++rank.value) {
    const Row& row = schedule.rows[rank.value];
    SharedRow& shared = rows.emplace_back();
    shared.row = &row;
    shared.slack = slack.at(rank.value);
    shared.units = RowCutter(order, row).run();
    for (WorkUnit& unit : shared.units) {
      unit.memory =
          memory_of(unit, row, uses[rank.value], schedule.graph, stages);
    }
  }
  return rows;
}

}  // namespace cleave
