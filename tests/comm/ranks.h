#pragma once

#include <functional>

#include "cleave/comm/transport.h"

// Tests of messages are written once, and built with ranks that are threads
// and with ranks that are processes.
namespace cleave {

// The most ranks a test can have here.
int most_ranks();

// Runs `body` on the first `count` ranks, and returns when all are done.
// REQUIRES: count <= most_ranks().
void on_ranks(int count, const std::function<void(Transport&)>& body);

}  // namespace cleave
