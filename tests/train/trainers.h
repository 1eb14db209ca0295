#pragma once

#include "cleave/train/trainer.h"

// Tests of training are written once, and built with ranks that are threads
// and with ranks that are processes, each of which runs the tests.
namespace cleave {

// The most ranks a plan can have here.
int most_ranks();

// With as many devices as the plan needs, one thread each.
Trainer trainer_of(const Model& model,
                   const Plan& plan,
                   const Training& training);

// Whether Trainer::stages() has all of them in this process.
bool gets_all_stages();

}  // namespace cleave
