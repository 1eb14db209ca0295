#pragma once

#include "cleave/schedule/schedule.h"

// Passes complete a schedule: a value in, a new value out.
namespace cleave {

// Adds the messages to a schedule of compute actions: a receive right before
// what needs it, a send right after what makes it. Neighbouring stages on one
// rank need none. Throws Error where `compute` has messages already.
Schedule with_messages(const Schedule& compute);

}  // namespace cleave
