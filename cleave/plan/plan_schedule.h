#pragma once

#include <vector>

#include "cleave/mesh.h"
#include "cleave/plan/plan.h"
#include "cleave/schedule/search/search.h"
#include "cleave/schedule/turns.h"

// What a plan says about its schedule; nothing else derives it.
namespace cleave {

// The rank of every stage. Ranks are the plan's devices, in the order in which
// stages name them; a stage that names none has one of its own.
std::vector<Rank> placement_of(const Plan& plan);
int rank_count(const Plan& plan);

Mesh mesh_of(const Plan& plan);

// Whether any of its devices share a core.
bool share_cores(const Plan& plan);

// The plan's predicted times as the simulator takes them. A plan written by
// hand may have none; its stages are then taken to be even.
ScheduleCosts costs_of(const Plan& plan);

// What the plan says about the memory of every stage.
std::vector<StageBytes> memory_of(const Plan& plan);

// For every rank, what it needs beside its row and messages: parameters and all
// that is fixed, but for gradients, which the row makes.
std::vector<Bytes> memory_beside(const Plan& plan);

// For every rank, the messages that wait: as many as the timeline says, and at
// least one each way behind every stage. REQUIRES: the schedule is the plan's,
// and the timeline of it.
std::vector<Bytes> messages_waiting(const Plan& plan,
                                    const Schedule& schedule,
                                    const Timeline& timeline);

// What a schedule for the plan is searched by.
SearchProblem search_problem_of(const Plan& plan, int microbatches);

// The compute actions of a step with so many microbatches: those of the
// schedule the plan names or, for "auto", the best found for its times and
// memory, the same whenever it is asked for. Throws Error where the plan's
// devices do not fit the schedule.
Schedule schedule_of(const Plan& plan, int microbatches);

// The rows of that schedule, as ranks work on them. Where they lend, with the
// memory that this takes by the plan's times, as far as budgets allow; in their
// order, unless the schedule is "auto".
std::vector<SharedRow> training_rows(const Plan& plan,
                                     const Schedule& schedule);

// The plan's step on paper, by those rows.
Timeline predicted_timeline(const Plan& plan,
                            const std::vector<SharedRow>& rows);

// The rows of a pass that learns nothing.
std::vector<SharedRow> evaluation_rows(const Plan& plan, int microbatches);

}  // namespace cleave
