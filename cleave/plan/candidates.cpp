#include "cleave/plan/candidates.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "cleave/counted.h"
#include "cleave/error.h"
#include "cleave/plan/picoseconds.h"
#include "cleave/plan/predict.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"

namespace cleave {
namespace {

// How a schedule can be drafted.
struct DraftKind {
  std::string schedule;
  int stages_per_rank;
};

// "auto" is cut for schedules that stand for what a search can find, with the
// fewest and with more microbatches in memory, one and two stages per device.
std::vector<DraftKind> draft_kinds(const PlanTask& task) {
  const int asked = task.stages_per_device;
  std::vector<DraftKind> kinds;
  if (task.schedule == kAutoSchedule) {
    if (asked <= 1) {
      kinds = {{"1f1b", 1}, {"zb-h1", 1}, {"zb-h2", 1}};
    }
    if (asked == 0 || asked == 2) {
      kinds.push_back({"zb-v", 2});
    }
    if (asked != 1) {
      kinds.push_back({"interleaved", std::max(asked, 2)});
    }
    return kinds;
  }
  const int fixed = stages_per_rank_of(task.schedule);
  const int any = fixed == kAnyNumber ? 2 : fixed;
  return {{task.schedule, asked > 0 ? asked : any}};
}

// The devices of a pipeline of so many ranks. Of those that share a core, as
// slow as when all on it compute, also those of other replicas.
std::vector<DeviceSpec> devices_for(int ranks,
                                    const std::vector<DeviceSpec>& devices,
                                    const PlanTask& task) {
  std::vector<DeviceSpec> used(devices.begin(), devices.begin() + ranks);
  const auto all = devices.begin() + std::ptrdiff_t{ranks} * task.replicas;
  for (DeviceSpec& device : used) {
    const auto sharing = std::ranges::count(
        devices.begin(), all, device.core, &DeviceSpec::core);
    if (device.core >= 0 && sharing > 1) {
      device.speed /= static_cast<double>(sharing);
    } else {
      device.core = -1;
    }
  }
  return used;
}

// What the slowest of the `most` fastest takes. REQUIRES: there are some.
Seconds slowest_of_the_fastest(std::vector<Seconds> steps, std::size_t most) {
  std::ranges::sort(steps);
  return steps[std::min(most, steps.size()) - 1];
}

}  // namespace

std::vector<Draft> drafts_for(const Profile& profile,
                              const std::vector<DeviceSpec>& devices,
                              const PlanTask& task) {
  const auto layers = static_cast<int>(profile.layers.size());
  const auto most = static_cast<int>(devices.size()) / task.replicas;
  std::vector<Draft> drafts;
  for (int ranks = 1; ranks <= most; ++ranks) {
    for (const auto& [schedule, per_rank] : draft_kinds(task)) {
      const int stages = ranks * per_rank;
      if (stages > layers || (task.stages > 0 && stages != task.stages)) {
        continue;
      }
      const int microbatches = microbatches_for(ranks, task);
      drafts.emplace_back(
          ScaledRequest(profile, task, microbatches),
          devices_for(ranks, devices, task),
          make_schedule(schedule, {ranks, per_rank, microbatches}));
    }
  }
  return drafts;
}

std::vector<Draft> draft_of(const Schedule& given,
                            const Profile& profile,
                            const std::vector<DeviceSpec>& devices,
                            const PlanTask& task) {
  const auto ranks = static_cast<int>(given.rows.size());
  if (std::ptrdiff_t{ranks} * task.replicas > std::ssize(devices) ||
      given.stages() > std::ssize(profile.layers)) {
    fail("the schedule in " + task.schedule + " has " + counted(ranks, "rank") +
             " and " + counted(given.stages(), "stage") + ", but there are " +
             counted(std::ssize(devices), "device") + " and " +
             counted(std::ssize(profile.layers), "layer"),
         "Name more devices, or write a schedule of fewer.");
  }
  std::vector<Draft> drafts;
  drafts.emplace_back(ScaledRequest(profile, task, given.microbatches),
                      devices_for(ranks, devices, task),
                      passes_of(given));
  return drafts;
}

std::vector<Candidate> cut_drafts(const std::vector<Draft>& drafts) {
  constexpr std::size_t kMost = 6;
  std::vector<std::optional<CutDraft>> cuts;
  std::vector<Seconds> steps;
  for (const Draft& draft : drafts) {
    cuts.push_back(draft.best_cut(/*moves_cuts=*/false));
    if (cuts.back()) {
      steps.push_back(cuts.back()->step);
    }
  }
  std::vector<Candidate> found;
  if (steps.empty()) {
    return found;
  }
  const Seconds slowest = slowest_of_the_fastest(std::move(steps), kMost);
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (cuts[i] && cuts[i]->step <= slowest) {
      cuts[i] = drafts[i].best_cut(/*moves_cuts=*/true);
    }
    if (cuts[i]) {
      found.push_back({&drafts[i], *std::move(cuts[i]), drafts[i].passes()});
    }
  }
  return found;
}

std::vector<Candidate> most_promising(const std::vector<Candidate>& all) {
  constexpr std::size_t kMost = 3;
  std::map<int, Candidate> best;  // by ranks
  for (const Candidate& candidate : all) {
    const int ranks = candidate.draft->ranks();
    const auto [place, is_new] = best.try_emplace(ranks, candidate);
    if (!is_new && candidate.cut.step < place->second.cut.step) {
      place->second = candidate;
    }
  }
  std::vector<Seconds> steps;
  steps.reserve(best.size());
  for (const auto& [ranks, candidate] : best) {
    steps.push_back(candidate.cut.step);
  }
  const Seconds slowest = slowest_of_the_fastest(std::move(steps), kMost);
  const int most = best.rbegin()->first;
  std::vector<Candidate> found;
  for (auto& [ranks, candidate] : best) {
    if (candidate.cut.step <= slowest || ranks == most) {
      found.push_back(std::move(candidate));
    }
  }
  return found;
}

void search_schedules(std::vector<Candidate>& candidates) {
  for (Candidate& candidate : candidates) {
    if (auto found = candidate.draft->searched_passes(candidate.cut)) {
      candidate.passes = *std::move(found);
      candidate.cut.step = whole_picoseconds(
          period(candidate.passes, costs_of(candidate.cut.stages)));
    }
  }
}

const Candidate& fastest_of(const std::vector<Candidate>& candidates) {
  Seconds least = candidates.front().cut.step;
  for (const Candidate& candidate : candidates) {
    least = std::min(least, candidate.cut.step);
  }
  const int ranks =
      std::ranges::find_if(candidates, [&](const Candidate& candidate) {
        return candidate.cut.step <= kWorthADevice * least;
      })->draft->ranks();
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.draft->ranks() == ranks &&
        (best == nullptr || candidate.cut.step < best->cut.step)) {
      best = &candidate;
    }
  }
  return *best;
}

}  // namespace cleave
