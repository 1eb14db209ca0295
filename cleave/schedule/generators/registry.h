#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "cleave/schedule/schedule.h"

namespace cleave {

// How large a schedule is.
struct ScheduleShape {
  int ranks = 1;
  int stages_per_rank = 1;
  int microbatches = 1;

  int stages() const { return ranks * stages_per_rank; }
};

// Which rank has which stage.
enum class Placement {
  loop,  // in turn, again and again: 8 stages on ranks 0 1 2 3 0 1 2 3
  v,     // down and up again: 8 stages on ranks 0 1 2 3 3 2 1 0
};

// The generators, each in the file of its name. Forwards, backwards and weight
// gradients of a stage run in the order of the microbatches: gradients are then
// summed in the order of a run on one device, which makes the sums equal to the
// last bit.
// REQUIRES: nothing in the shape is below 1, and stages per rank are as many as
// the table below says.
Schedule gpipe(const ScheduleShape& shape);
Schedule one_f_one_b(const ScheduleShape& shape);
Schedule interleaved(const ScheduleShape& shape);
Schedule zb_h1(const ScheduleShape& shape);
Schedule zb_h2(const ScheduleShape& shape);
Schedule zb_v(const ScheduleShape& shape);

inline constexpr int kAnyNumber = 0;

// What a user asks for to have a schedule searched (search.h); not in the
// table.
inline constexpr std::string_view kAutoSchedule = "auto";

// In front of the file of a schedule in its text form; not in the table.
inline constexpr std::string_view kFileSchedule = "file:";

inline bool names_file(std::string_view schedule) {
  return schedule.starts_with(kFileSchedule);
}

struct ScheduleKind {
  std::string_view name;
  std::string_view description;
  Placement placement;
  int stages_per_rank;  // kAnyNumber, or what it needs
  Schedule (*make)(const ScheduleShape& shape);
};

// Every schedule a user can ask for. Help, tests and pages read this table.
inline constexpr std::array kSchedules{
    ScheduleKind{"gpipe",
                 "all forwards, then all backwards; every stage keeps every "
                 "microbatch in memory",
                 Placement::loop,
                 1,
                 gpipe},
    ScheduleKind{"1f1b",
                 "one forward, one backward in turn; a stage keeps only as "
                 "many microbatches as there are stages from it to the end",
                 Placement::loop,
                 1,
                 one_f_one_b},
    ScheduleKind{"interleaved",
                 "1f1b with several stages per rank, in turn; ranks wait less "
                 "the more stages they have, for more messages",
                 Placement::loop,
                 kAnyNumber,
                 interleaved},
    ScheduleKind{"zb-h1",
                 "1f1b that fills waits with weight gradients, in the memory "
                 "of 1f1b's first stage",
                 Placement::loop,
                 1,
                 zb_h1},
    ScheduleKind{"zb-h2",
                 "zb-h1 with more microbatches under way; hardly any waits, "
                 "for twice the memory",
                 Placement::loop,
                 1,
                 zb_h2},
    ScheduleKind{"zb-v",
                 "two stages per rank, down and up again; hardly any waits in "
                 "the memory of zb-h1, for twice the messages",
                 Placement::v,
                 2,
                 zb_v},
};

// What the schedule needs: a number of stages per rank, or kAnyNumber. Throws
// Error on an unknown name.
int stages_per_rank_of(std::string_view name);

// The rank of every stage. Throws as make_schedule() does.
std::vector<Rank> placement(std::string_view name, const ScheduleShape& shape);

// The passes of one step: complete() (complete.h) makes them a schedule that
// can be executed. Throws Error on an unknown name, where a
// number in the shape is below 1, and where the schedule needs another number
// of stages per rank.
Schedule make_schedule(std::string_view name, const ScheduleShape& shape);

// Every microbatch once through all stages and no way back, to evaluate a
// network without training it; `placement` is the rank of every stage. Throws
// Error where stages or microbatches are below 1.
Schedule forward_only(const std::vector<Rank>& placement, int microbatches);

}  // namespace cleave
