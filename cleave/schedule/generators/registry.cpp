#include "cleave/schedule/generators/registry.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cleave/error.h"
#include "cleave/nearest.h"

namespace cleave {
namespace {

[[noreturn]] void fail_unknown(std::string_view name) {
  std::vector<std::string_view> known{kAutoSchedule};
  std::string list(kAutoSchedule);
  for (const ScheduleKind& kind : kSchedules) {
    known.push_back(kind.name);
    list += ", " + std::string(kind.name);
  }
  const std::string meant = nearest(name, known);
  fail("there is no schedule '" + std::string(name) + "'",
       (meant.empty() ? "" : "Did you mean " + meant + "? ") +
           "Choose one of: " + list + ".");
}

void check_size(int stages, int microbatches) {
  if (stages < 1 || microbatches < 1) {
    fail("a schedule cannot have " + std::to_string(stages) + " stages and " +
             std::to_string(microbatches) + " microbatches",
         "Ask for at least one of each.");
  }
}

const ScheduleKind& find_kind(std::string_view name) {
  const auto* const kind =
      std::ranges::find(kSchedules, name, &ScheduleKind::name);
  if (kind == kSchedules.end()) {
    fail_unknown(name);
  }
  return *kind;
}

// The row of the table, for a shape that it can have.
const ScheduleKind& find_kind(std::string_view name,
                              const ScheduleShape& shape) {
  const ScheduleKind& kind = find_kind(name);
  check_size(std::min(shape.ranks, shape.stages()), shape.microbatches);
  const int wanted = kind.stages_per_rank;
  if (wanted != kAnyNumber && wanted != shape.stages_per_rank) {
    fail("the schedule '" + std::string(name) + "' cannot have " +
             std::to_string(shape.stages_per_rank) + " stages per rank",
         "Ask for " + std::to_string(wanted) + ", or choose another schedule.");
  }
  return kind;
}

// Plays forwards that all take equally long: a rank does the latest of its
// stages that has something to do, so that values do not pile up.
class ForwardPlay {
 public:
  ForwardPlay(const std::vector<Rank>& placement, int microbatches)
      : placement_(placement),
        done_(placement.size(), 0),
        schedule_{static_cast<int>(placement.size()), microbatches, {}, {}} {
    const auto last = std::ranges::max(placement, {}, &Rank::value);
    schedule_.rows.resize(last.value + 1);
  }

  Schedule run() {
    while (done_.back() < schedule_.microbatches) {
      const std::vector<int> before = done_;
      std::vector<bool> busy(schedule_.rows.size(), false);
      for (int stage = schedule_.stages() - 1; stage >= 0; --stage) {
        const int rank = placement_[stage].value;
        const int there =
            stage == 0 ? schedule_.microbatches : before[stage - 1];
        if (!busy[rank] && before[stage] < there) {
          busy[rank] = true;
          schedule_.rows[rank].push_back(
              {Op::forward, StageId{stage}, done_[stage]++, {}});
        }
      }
    }
    return std::move(schedule_);
  }

 private:
  const std::vector<Rank>& placement_;
  std::vector<int> done_;  // by stage: microbatches
  Schedule schedule_;
};

}  // namespace

int stages_per_rank_of(std::string_view name) {
  return find_kind(name).stages_per_rank;
}

std::vector<Rank> placement(std::string_view name, const ScheduleShape& shape) {
  const ScheduleKind& kind = find_kind(name, shape);
  std::vector<Rank> ranks;
  for (int stage = 0; stage < shape.stages(); ++stage) {
    const int place = stage % shape.ranks;
    const bool up =
        kind.placement == Placement::v && stage / shape.ranks % 2 == 1;
    ranks.push_back({up ? shape.ranks - 1 - place : place});
  }
  return ranks;
}

Schedule make_schedule(std::string_view name, const ScheduleShape& shape) {
  return find_kind(name, shape).make(shape);
}

Schedule forward_only(const std::vector<Rank>& placement, int microbatches) {
  check_size(static_cast<int>(placement.size()), microbatches);
  return ForwardPlay(placement, microbatches).run();
}

}  // namespace cleave
