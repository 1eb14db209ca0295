#pragma once

#include "cleave/checkpoint/run_folder.h"
#include "cleave/cli/assemble.h"

namespace cleave {

// Everything a training run is made of, ready to start.
struct Run {
  Config config;
  TrainAndTest data;
  Model model;
  Devices devices;
  Plan plan;
};

// Loads the data, builds the model's description, measures and plans. Writes
// nothing; throws Error on anything that would stop the run later.
Run prepare_run(const Config& config);

// Makes the output folder and puts configuration, plan and drawing into it.
RunFolder open_run_folder(const Run& run);

// Trains, shows it, logs it, and saves the stages, also when interrupted.
FitResult train_run(const Run& run,
                    const RunFolder& folder,
                    Trainer& trainer,
                    bool quiet);

// Joins the saved stages of a run into one file and reads it back. Returns the
// file; throws Error unless it holds the stages' bits.
std::filesystem::path merge_run(const RunFolder& folder,
                                const std::filesystem::path& file);

}  // namespace cleave
