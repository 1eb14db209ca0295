#include "cleave/schedule/registry.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cleave/error.h"
#include "cleave/nearest.h"

namespace cleave {
namespace {

[[noreturn]] void fail_unknown(std::string_view name) {
  std::vector<std::string_view> known;
  std::string list;
  for (const ScheduleKind& kind : kSchedules) {
    known.push_back(kind.name);
    list += (list.empty() ? "" : ", ") + std::string(kind.name);
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

}  // namespace

Schedule make_schedule(std::string_view name, int stages, int microbatches) {
  const auto* const kind =
      std::ranges::find(kSchedules, name, &ScheduleKind::name);
  if (kind == kSchedules.end()) {
    fail_unknown(name);
  }
  check_size(stages, microbatches);
  return kind->make(stages, microbatches);
}

Schedule forward_only(int stages, int microbatches) {
  check_size(stages, microbatches);
  Schedule schedule{stages, microbatches, {}};
  for (StageId stage; stage.value < stages; ++stage.value) {
    Row& row = schedule.rows.emplace_back();
    for (int m = 0; m < microbatches; ++m) {
      row.push_back({Op::forward, Microbatch{m}, stage});
    }
  }
  return schedule;
}

}  // namespace cleave
