#pragma once

#include <array>
#include <string_view>

#include "cleave/schedule/schedule.h"

namespace cleave {

// The generators, each in the file of its name. Forwards and backwards of a
// stage run in the order of the microbatches: gradients are then summed in the
// order of a run on one device, which makes the sums equal to the last bit.
// REQUIRES: stages and microbatches are at least 1.
Schedule gpipe(int stages, int microbatches);
Schedule one_f_one_b(int stages, int microbatches);

struct ScheduleKind {
  std::string_view name;
  std::string_view description;
  Schedule (*make)(int stages, int microbatches);
};

// Every schedule a user can ask for. Help, tests and pages read this table.
inline constexpr std::array kSchedules{
    ScheduleKind{"gpipe",
                 "all forwards, then all backwards; every stage keeps every "
                 "microbatch in memory",
                 gpipe},
    ScheduleKind{"1f1b",
                 "one forward, one backward in turn; a stage keeps only as "
                 "many microbatches as there are stages from it to the end",
                 one_f_one_b},
};

// The compute actions of one step: with_messages() (passes.h) makes them a
// schedule that can be executed. Throws Error on an unknown name and where
// stages or microbatches are below 1.
Schedule make_schedule(std::string_view name, int stages, int microbatches);

// Every microbatch once through all stages and no way back, to judge a network
// without training it. Throws Error where stages or microbatches are below 1.
Schedule forward_only(int stages, int microbatches);

}  // namespace cleave
