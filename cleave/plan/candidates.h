#pragma once

#include <vector>

#include "cleave/plan/draft.h"

// The ways to run a model that are weighed against each other. For the planner
// only.
namespace cleave {

// Fewer devices are taken unless more are faster by this factor: a prediction
// is not better than that, and a device must be paid for.
inline constexpr double kWorthADevice = 1.01;

// A draft, its cut, and the passes of its final schedule.
struct Candidate {
  const Draft* draft = nullptr;
  CutDraft cut;
  Schedule passes;
};

// A draft for every number of devices and every pattern of stages that the
// request allows.
std::vector<Draft> drafts_for(const Profile& profile,
                              const std::vector<DeviceSpec>& devices,
                              const PlanTask& task);

// The one draft of a schedule that was given as text.
std::vector<Draft> draft_of(const Schedule& given,
                            const Profile& profile,
                            const std::vector<DeviceSpec>& devices,
                            const PlanTask& task);

// The drafts that fit, by rising number of devices, each with its best cut.
// Only those that are fastest without get their cuts moved, which takes time.
// They refer to the drafts.
std::vector<Candidate> cut_drafts(const std::vector<Draft>& drafts);

// For every number of devices the best, as far as it is among the fastest or
// uses most devices: searching for a schedule takes time.
std::vector<Candidate> most_promising(const std::vector<Candidate>& all);

// Gives every candidate the schedule that is searched for its cut, where one
// was found that fits.
void search_schedules(std::vector<Candidate>& candidates);

// The fastest, on as few devices as are worth it. REQUIRES: there is one.
const Candidate& fastest_of(const std::vector<Candidate>& candidates);

}  // namespace cleave
