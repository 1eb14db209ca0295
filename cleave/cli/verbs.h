#pragma once

#include <CLI/CLI.hpp>

#include "cleave/cli/config/config.h"

// One file per verb; each adds itself to the program. What a verb does runs
// when CLI11 calls it back; `overrides` is complete by then.
namespace cleave {

void add_quickstart(CLI::App& program);
void add_devices(CLI::App& program);
void add_plan(CLI::App& program, const Overrides& overrides);
void add_train(CLI::App& program, const Overrides& overrides);
void add_merge(CLI::App& program);
void add_evaluate(CLI::App& program, const Overrides& overrides);

}  // namespace cleave
